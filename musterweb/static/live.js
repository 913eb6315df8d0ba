// Keeps the body of a page as the server sends it, and says when it is not current.
"use strict";
(() => {
  const target = document.body.dataset.stream;
  if (!target) return;
  const SILENCE_MS = 15000;
  const body = document.getElementById("body");
  const state = document.getElementById("state");
  const word = document.getElementById("word");
  const at = document.getElementById("at");
  let heard = Date.now();
  let next = null;
  let isOver = false;

  function say(isLive, text, time) {
    if (word.textContent !== text) word.textContent = text;
    if (time) at.textContent = time;
    state.dataset.live = isLive ? "yes" : "no";
    if (isLive) delete document.body.dataset.stale;
    else document.body.dataset.stale = "";
  }

  function show(message) {
    say(message.live, message.live ? "Current" : "Not current: " + (message.problem || "being read"), message.at);
  }

  // Whoever marks text to copy it, or is in a list of choices, keeps what is there.
  function isHeld() {
    const marked = document.getSelection();
    if (marked && !marked.isCollapsed && body.contains(marked.anchorNode)) return true;
    const active = document.activeElement;
    return body.contains(active) && ["INPUT", "SELECT", "TEXTAREA"].includes(active.tagName);
  }

  function replace() {
    if (next === null || isOver || isHeld()) return;
    const active = document.activeElement;
    const link = body.contains(active) ? active.getAttribute("href") : null;
    const id = body.contains(active) ? active.id : "";
    const scrolls = new Map([...body.querySelectorAll(".scroll")].map((part) => [part.id, part.scrollLeft]));
    const parsed = new DOMParser().parseFromString(next, "text/html");
    body.replaceChildren(...parsed.body.childNodes);
    next = null;
    for (const part of body.querySelectorAll(".scroll")) part.scrollLeft = scrolls.get(part.id) || 0;
    const again = (id && document.getElementById(id)) ||
      (link !== null && [...body.querySelectorAll("a")].find((each) => each.getAttribute("href") === link));
    if (again) again.focus({ preventScroll: true });
  }

  const source = new EventSource("/events?page=" + encodeURIComponent(target));
  source.addEventListener("page", (event) => {
    heard = Date.now();
    const message = JSON.parse(event.data);
    next = message.html;
    replace();
    if (next === null) show(message);
    else say(false, "Paused while you mark or choose something", "");
  });
  source.addEventListener("state", (event) => {
    heard = Date.now();
    replace();
    const message = JSON.parse(event.data);
    if (next === null) show(message);
  });
  source.addEventListener("end", (event) => {
    isOver = true;
    source.close();
    const link = document.createElement("a");
    link.href = "/sign-in";
    link.textContent = "Sign in";
    const line = document.createElement("p");
    line.append(link);
    body.replaceChildren(line);
    say(false, JSON.parse(event.data).problem, "");
  });
  source.addEventListener("error", () => {
    if (isOver) return;
    say(false, source.readyState === EventSource.CLOSED
      ? "Not current: the server ended the connection; open the page anew"
      : "Not current: no connection to muster web", "");
  });
  setInterval(() => {
    if (!isOver && Date.now() - heard > SILENCE_MS) say(false, "Not current: nothing heard from muster web", "");
  }, 1000);
})();
