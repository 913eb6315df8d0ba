// Draws the charts of a page from the figures that stand in it.
"use strict";
(() => {
  const DASHES = [[], [6, 3], [2, 3], [10, 4, 2, 4]];
  const HEIGHT = 220;
  // Times are those of the tables: UTC. The columns: least distance of ticks, text, and what is added where a year or a day begins.
  const TIMES = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];
  const plots = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function options(chart, width) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    return {
      width,
      height: HEIGHT,
      scales: { y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.05 : 1] } },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [{ ...axis, values: TIMES, space: 70 }, { ...axis, size: 60, values: (_plot, ticks) => ticks.map((tick) => tick + chart.unit) }],
      series: [
        { value: (_plot, at) => (at === null ? "" : new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC") },
        ...chart.series.map((line, place) => ({
          label: line.name,
          stroke: colour("--line-" + (place % 4 + 1)),
          width: 2,
          dash: DASHES[Math.floor(place / 4) % DASHES.length],
          spanGaps: false,
          points: { show: chart.times.length < 2 },
          value: (_plot, value) => (value === null || value === undefined ? "-" : value + chart.unit),
        })),
      ],
    };
  }

  function draw() {
    for (const plot of plots.splice(0)) plot.destroy();
    for (const place of document.querySelectorAll("[data-chart]")) {
      const chart = JSON.parse(place.dataset.chart);
      const figures = [chart.times, ...chart.series.map((line) => line.values)];
      plots.push(new uPlot(options(chart, place.clientWidth), figures, place));
    }
  }

  let waiting = 0;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 100);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
