// Command verify checks the directories of acceptance records without muster and without Python.
// It is written from docs/reference/record.md, record-origin.md and record-forms.md. It checks the files, the form and
// the order of the log, makes the record anew from the log and from the verdicts on checks, and checks the statement.
// It judges no events and renders no page: `muster report verify` does.
//
// Usage: verify [-key customer.pub]... DIRECTORY... The exit code is 1 if one is refused.
package main

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// allForms has a line for each object with its keys: the form `s` is left out, `~` may be absent, `?` may be null.
//
//go:embed forms.txt
var allForms string

type object = map[string]any

var (
	forms             = readForms()
	integer, decimal  = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,15})$`), regexp.MustCompile(`^(0|[1-9][0-9]*)\.[0-9]+$`)
	utc, digest       = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`), regexp.MustCompile(`^[0-9a-f]{64}$`)
	tokens, pseudonym = regexp.MustCompile(`^(sha256:[0-9a-f]{64})?$`), regexp.MustCompile(`^((project|host)-\d+)?$`)
	listed, version   = regexp.MustCompile(`^([0-9a-f]{64})  (\S.*)\n$`), regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
	unescape          = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u2028`, "\u2028", `\u2029`, "\u2029")
	gravest           = []any{"ERROR", "FAIL", "INCONCLUSIVE", "BLOCKED", "WAIVED", "PASS"}
	ofObjects         = []string{"node", "cluster", "pod", "gpus", "output"}
	ofReport          = []string{"report.json", "events.jsonl", "report.html", "report.md", "junit.xml"}
)

func main() {
	required, code := []string{}, 0
	flag.Func("key", "public key of a required signature (Ed25519, PEM); repeatable", func(file string) error { required = append(required, file); return nil })
	flag.Parse()
	each(flag.Args(), func(directory string) {
		why := verify(directory, required)
		code = max(code, number(!strings.HasPrefix(why, "accepted")))
		fmt.Printf("%q: %s\n", directory, why)
	})
	os.Exit(code)
}
func verify(directory string, required []string) (why string) {
	defer func() {
		found := recover()
		why = pick(found == nil, why, fmt.Sprintf("refused: %q", fmt.Sprint(found)))
	}()
	files, report := readManifest(directory), parse(read(filepath.Join(directory, "report.json"), 32<<20), "Report")
	made, beside := readLog(read(filepath.Join(directory, "events.jsonl"), 1<<30)).assemble(report)
	maps.DeleteFunc(files, func(name string, _ any) bool { return slices.Contains(ofReport, name) })
	require(same(files, beside), "the files beside the log are not those that it names")
	each(keys(made), func(key string) { require(same(made[key], report[key]), "report.json: ", key, " does not follow") })
	require(len(made) == len(report) && num(report, "schemaVersion") == 3, "report.json: more, or of another version")
	return "accepted" + checkStatement(directory, required, report)
}
func require(holds bool, words ...any) {
	pick(holds, func() {}, func() { panic(fmt.Sprint(words...)) })()
}
func read(path string, most int64) []byte {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	require(err == nil, path, ": cannot be read")
	defer file.Close()
	status, err := file.Stat()
	require(err == nil && status.Mode().IsRegular() && status.Size() <= most, path, ": no plain file, or too large")
	content, _ := io.ReadAll(io.LimitReader(file, most))
	return content
}
func digestOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// readManifest returns the digest of each file but the manifest and the statement.
func readManifest(directory string) object {
	present, found, total := map[string]bool{}, object{}, int64(0)
	err := fs.WalkDir(os.DirFS(directory), ".", func(name string, entry fs.DirEntry, err error) error {
		require(err == nil && strings.Count(name, "/") <= 8, name, ": cannot be read, or is too deep")
		if status, err := entry.Info(); !entry.IsDir() {
			require(err == nil && status.Mode().IsRegular(), name, ": no plain file")
			present[name], total = true, total+status.Size()
		}
		require(total <= 1<<30 && len(present) <= 10000, "too many or too large files")
		return nil
	})
	content := read(filepath.Join(directory, "manifest.sha256"), 4<<20)
	own := "# sha256 of the lines above: "
	end := max(0, bytes.LastIndex(content, []byte(own)))
	require(err == nil && string(content[end:]) == own+digestOf(content[:end])+"\n", "manifest.sha256: none, or changed")
	for line := range strings.Lines(string(content[:end])) {
		match := append(listed.FindStringSubmatch(line), "", "", "")
		unprintable := strings.ContainsFunc(match[2], func(letter rune) bool { return !unicode.IsPrint(letter) || letter == unicode.ReplacementChar })
		require(present[match[2]] && found[match[2]] == nil && !unprintable, match[2], ": missing, or listed twice")
		found[match[2]] = digestOf(read(filepath.Join(directory, match[2]), 1<<30))
		require(found[match[2]] == match[1], match[2], ": changed")
	}
	delete(present, "statement.json")
	require(len(present) == len(found)+1, "a file is not of this report")
	each(ofReport, func(name string) { require(found[name] != nil, name, ": missing") })
	return found
}

// parse reads one object in canonical form (RFC 8785): numbers are as the forms allow, and keys are of ASCII.
func parse(content []byte, form string) (found object) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	require(decoder.Decode(&found) == nil && fits(found, form), "no ", form, ", or in another form")
	require(canonical(found) == string(content), "a ", form, " is not canonical")
	return found
}
func canonical(v any) string { text, _ := json.Marshal(v); return unescape.Replace(string(text)) }
func readForms() map[string]map[string]string {
	result, name := map[string]map[string]string{}, ""
	for _, word := range strings.Fields(allForms) {
		if key, form, _ := strings.Cut(word, ":"); unicode.IsUpper(rune(word[0])) || strings.Contains(word, "=") {
			name, result[word] = word, map[string]string{}
		} else {
			result[name][key] = cmp.Or(form, "s")
		}
	}
	return result
}

// fits says whether a value has this form.
func fits(value any, form string) bool {
	inner, nullable := strings.CutSuffix(form, "?")
	switch found := value.(type) {
	case nil, string, bool:
		return map[string]bool{"<nil>": nullable, "string": inner == "s", "bool": inner == "b"}[fmt.Sprintf("%T", found)]
	case json.Number:
		whole := integer.MatchString(string(found)) && num(object{"": found}, "")>>53 <= 0
		return whole && (inner == "i" || inner == "f") || inner == "f" && decimal.MatchString(string(found))
	case []any:
		one, is := strings.CutPrefix(inner, "[]")
		return is && !slices.ContainsFunc(found, func(element any) bool { return !fits(element, one) })
	}
	found, fitting := value.(object), 0
	one, isMap := strings.CutPrefix(inner, "{}")
	inner = cmp.Or(map[string]string{"Entry": "entry=" + str(found, "entry"), "Event": "event=" + str(found, "event")}[inner], inner)
	for key, member := range found {
		its := cmp.Or(forms[inner][key], forms[inner][key+"~"])
		fitting += number(isMap && fits(member, one) || its != "" && fits(member, its))
	}
	each(keys(forms[inner]), func(key string) { _, is := found[key]; fitting -= number(!is && !strings.HasSuffix(key, "~")) })
	return fitting == len(found) && (isMap || forms[inner] != nil)
}
func get(value any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		found, _ := value.(object)
		value = found[key]
	}
	return value
}
func str(value any, path string) string    { found, _ := get(value, path).(string); return found }
func arr(value any, path string) []any     { found, _ := get(value, path).([]any); return found }
func same(one, other any) bool             { return canonical(one) == canonical(other) }
func digits[N int | int64](value N) any    { return json.Number(fmt.Sprint(value)) }
func rising(values ...int64) bool          { return slices.IsSorted(values) }
func clone(value any) object               { return maps.Clone(value.(object)) }
func number(holds bool) int                { return map[bool]int{true: 1}[holds] }
func num(v any, path string) int64         { n, _ := get(v, path).(json.Number); i, _ := n.Int64(); return i }
func text(value any) string                { found, _ := value.(string); return found }
func keys[T any](of map[string]T) []string { return slices.Sorted(maps.Keys(of)) }
func pick[T any](holds bool, yes, no T) T {
	if holds {
		return yes
	}
	return no
}
func each[T any](list []T, do func(T)) {
	for _, one := range list {
		do(one)
	}
}
func index(list []any, key string) object {
	found := object{}
	each(list, func(one any) { found[str(one, key)] = one })
	require(len(found) == len(list), key, ": there twice")
	return found
}
func moment(value any, path string) time.Time {
	found, err := time.Parse(time.RFC3339, str(value, path))
	require(err == nil && utc.MatchString(str(value, path)), str(value, path), ": no time")
	return found
}

// journal is the part of a log that was read; maps are by check, scenario, node, or kind and uid.
type journal struct {
	opened, described, closed, report, asked, known, began, ended, scenarios, gpus, names, nodes, versions, listed object
	kind, uid, authority, running, sha256                                                                          string
	now, events                                                                                                    int64
	hasObjects, hasTools, isRedacted                                                                               bool
}

func readLog(content []byte) *journal {
	log := &journal{began: object{}, ended: object{}, scenarios: object{}, gpus: object{}, nodes: object{}, listed: object{}}
	log.names, log.versions, log.sha256 = object{}, object{}, digestOf(content)
	for line := range bytes.Lines(content) {
		require(bytes.HasSuffix(line, []byte("\n")) && len(line) <= 32<<20, "events.jsonl: a line is cut, or too long")
		entry := parse(line[:len(line)-1], "Entry")
		log.take(str(entry, "entry"), str(entry, "check"), entry)
	}
	require(log.closed != nil, "events.jsonl: not of a whole run")
	return log
}
func (log *journal) take(kind, check string, entry object) {
	require((log.opened == nil) == (kind == "opened") && log.closed == nil, "events.jsonl: entries before or after the run")
	when := cmp.Or(map[string]string{"observed": "event.tMs", "ended": "endedMs", "closed": "durationMs"}[kind], "tMs")
	require(get(entry, when) == nil || num(entry, when) >= log.now, "events.jsonl: its times go back")
	log.now = max(log.now, num(entry, when))
	id, selected := str(entry, "scenario"), slices.Contains(arr(log.opened, "selected"), any(check))
	map[string]func(){
		"opened":    func() { log.open(entry) },
		"observed":  func() { log.events++; log.observe(entry, entry["event"].(object), str(entry, "event.event")) },
		"described": func() { log.describe(entry) },
		"scenario": func() {
			require(log.known[id] != nil && log.scenarios[id] == nil, "events.jsonl: scenario ", id, " cannot begin")
			log.scenarios[id] = object{"startedMs": entry["tMs"], "endedMs": entry["tMs"]}
		},
		"began": func() {
			right := log.asked[check] != nil && (selected || str(log.asked[check], "kind") == "step")
			require(right && log.began[check] == nil && log.running == "", "events.jsonl: check ", check, " cannot begin")
			log.began[check], log.running = entry["tMs"], check
		},
		"ended":  func() { log.end(check, log.asked[check], entry) },
		"closed": func() { log.close(entry) },
	}[kind]()
}
func (log *journal) open(entry object) {
	log.opened, log.report = entry, entry["report"].(object)
	log.kind, log.isRedacted = str(log.report, "target.kind"), str(log.report, "redacted") != ""
	started, id := moment(log.report, "volatile.run.started"), str(log.report, "volatile.run.id")
	right := regexp.MustCompile("^" + started.Format("20060102-150405-") + regexp.QuoteMeta(log.kind) + "-[0-9a-f]{4}$")
	its := right.MatchString(id) && (!log.isRedacted || digest.MatchString(str(log.report, "redacted")))
	its = its && started.Format(time.DateOnly) == str(log.report, "scope.today")
	log.asked, log.known = index(arr(log.report, "steps"), "id"), index(arr(log.report, "scenarios"), "id")
	each(arr(entry, "selected"), func(one any) { its = its && log.asked[text(one)] != nil })
	require(its && index(arr(log.report, "requirements"), "id") != nil, "events.jsonl: another id, day, digest or check")
}
func (log *journal) observe(entry, event object, kind string) {
	isObject, name, uid := slices.Contains(ofObjects, kind) && log.kind != "planner", str(event, "node"), str(event, "uid")
	key, written, uids := kind+" "+uid, str(entry, "resourceVersion"), arr(event, "uids")
	require(isObject || written == "" && entry["serverTime"] == "", "events.jsonl: a version of no object")
	if isObject {
		seen := object{"version": json.Number(written)}
		rises := version.MatchString(written) && (uid == "" || num(seen, "version") >= num(log.versions[key], "version"))
		require(rises, "events.jsonl: ", uid, " cannot have the version ", written)
		log.versions[key], log.hasObjects = seen, log.hasObjects || kind == "pod" || kind == "node"
		passed := moment(entry, "serverTime").Sub(moment(log.report, "volatile.run.started"))
		late := (kind == "pod" || kind == "output") && passed < -24*time.Hour || passed-time.Duration(num(event, "tMs"))*time.Millisecond > 24*time.Hour
		right := !late && (uid != "" || kind == "cluster" || kind == "gpus")
		require(right, "events.jsonl: ", uid, " was changed in another run, or has no uid")
	}
	log.hasTools, log.listed[str(event, "kind")] = log.hasTools || event["tool"] == "nvidia-smi", true
	switch kind {
	case "cluster":
		another := log.uid != "" && log.uid != event["kubeSystemUid"]
		right := event["kubeSystemUid"] != "" && digest.MatchString(str(event, "caSha256"))
		require(right && log.kind != "planner" && !(another && log.kind == "cluster"), "events.jsonl: another cluster")
		log.versions, log.names = pick(another, object{}, log.versions), pick(another, object{}, log.names)
		log.uid, log.authority = str(event, "kubeSystemUid"), str(event, "caSha256")
	case "node":
		require(!isObject || cmp.Or(str(log.names, uid), name) == name, "events.jsonl: a node with the uid of another")
		log.gpus[name], log.nodes[name], log.names[uid] = event["gpus"], event, name
	}
	each(arr(event, "gpus"), func(gpu any) { uids = append(append(uids, get(gpu, "uuid")), arr(gpu, "users")...) })
	each(append(uids, event["uid"], event["systemUuid"], event["kubeSystemUid"]), func(one any) {
		right := pick(log.isRedacted, tokens.MatchString(text(one)), !strings.HasPrefix(text(one), "sha256:"))
		require(right, "events.jsonl: ", one, " is a uid in a redacted record, or a token in another")
	})
	for _, one := range append(arr(event, "nodes"), name, event["project"], event["host"]) {
		require(!log.isRedacted || pseudonym.MatchString(text(one)), "events.jsonl: a name in a redacted record")
	}
}
func (log *journal) describe(entry object) {
	described, total, right := index(arr(entry, "cluster.nodes"), "name"), num(entry, "cluster.gpus"), str(entry, "target.kind") == log.kind
	each(keys(log.gpus), func(name string) { total -= num(log.gpus, name) })
	for _, name := range append(keys(log.gpus), keys(described)...) {
		right = right && num(described[name], "gpus") == num(log.gpus, name)
	}
	again := log.described == nil || str(log.described, "cluster.kubernetes") == str(entry, "cluster.kubernetes")
	require(right && again && total == 0, "events.jsonl: another target is described than was seen")
	log.described = entry
}
func (log *journal) end(check string, asked any, entry object) {
	start, began, window, scenario := entry["startedMs"], num(log.began, check), entry["window"], log.scenarios[str(asked, "scenario")]
	right := log.running == check && (start == nil) == (entry["endedMs"] == nil)
	require(right && (start == nil || rising(began, num(entry, "startedMs"), log.now)), "events.jsonl: ", check, " cannot end")
	events := rising(0, num(window, "fromEvent"), num(window, "startEvent"), num(window, "untilEvent"), log.events)
	seen := events && rising(0, num(window, "startedMs"), num(window, "endedMs"), log.now)
	seen = seen && (str(asked, "kind") == "layer" || scenario != nil)
	require(window == nil || seen, "events.jsonl: ", check, " rests on events that were not seen")
	log.ended[check], log.running = entry, ""
	maps.Copy(pick(scenario != nil && start != nil, scenario, any(object{})).(object), object{"endedMs": entry["endedMs"]})
}
func (log *journal) close(entry object) {
	log.closed = entry
	took := moment(entry, "ended").Sub(moment(log.report, "volatile.run.started"))
	agrees := (took-time.Duration(log.now)*time.Millisecond).Abs() <= time.Hour || log.kind == "planner"
	require(took >= 0 && agrees, "events.jsonl: the clocks do not agree")
	whole := log.described != nil && log.running == ""
	each(arr(log.opened, "selected"), func(one any) { whole = whole && log.ended[one.(string)] != nil })
	require(whole || entry["interrupted"] != "", "events.jsonl: a check did not end, and nothing interrupted the run")
	require(!log.hasObjects || log.uid != "" && log.listed["nodes"] == true && log.listed["pods"] == true, "events.jsonl: no cluster")
}

// assemble makes the record from the log, and from what only a judge of events can say, which it takes from the record.
func (log *journal) assemble(recorded object) (made, beside object) {
	made, trace, run := clone(log.report), clone(recorded["volatile"]), clone(get(log.report, "volatile.run"))
	each([]string{"durationMs", "ended", "timings"}, func(key string) { run[key] = log.closed[key] })
	trace["run"], trace["events"] = run, object{"file": "events.jsonl", "sha256": log.sha256, "events": digits(log.events)}
	made["volatile"], made["interrupted"], made["summary"] = trace, log.closed["interrupted"], recorded["summary"]
	maps.Copy(made, pick(log.described != nil, object{"target": log.described["target"], "cluster": log.described["cluster"]}, nil))
	maps.Copy(made, pick(get(made, "scope.hosts") != nil, object{"hosts": recorded["hosts"]}, nil))
	if log.uid != "" || log.hasTools {
		made["identity"] = log.identify(recorded["identity"])
	}
	steps, scenarios := []any{}, []any{}
	for _, step := range arr(log.report, "steps") {
		if id := str(step, "id"); log.began[id] != nil || slices.Contains(arr(log.opened, "selected"), any(id)) {
			steps = append(steps, log.judged(clone(step), arr(recorded, "steps")[len(steps)], id))
		}
	}
	each(arr(log.report, "scenarios"), func(one any) {
		times := log.scenarios[str(one, "id")]
		scenarios = append(scenarios, clone(one))
		scenarios[len(scenarios)-1].(object)["volatile"] = pick(times != nil, times, get(one, "volatile"))
	})
	made["steps"], made["scenarios"] = steps, scenarios
	conclude(made, recorded)
	return made, clone(log.closed["files"])
}
func (log *journal) judged(made object, recorded any, id string) object {
	trace, end := clone(get(recorded, "volatile")), log.ended[id]
	each([]string{"verdict", "reason", "required", "actual", "differences"}, func(key string) { made[key] = get(recorded, key) })
	made["volatile"], made["circumstances"] = trace, get(pick(end != nil, end, recorded), "circumstances")
	times := []string{"startedMs", "endedMs", "commands", "window"}
	each(times, func(key string) { trace[key] = pick(end != nil, get(end, key), trace[key]) })
	wrong := len(arr(made, "differences")) + len(arr(trace, "violations")) + len(arr(made, "oracleDifferences")) + number(end == nil)
	each(keys(made["circumstances"].(object)), func(key string) { wrong += number(get(made, "circumstances."+key) != "") })
	require(made["verdict"] != "PASS" || wrong == 0, "report.json: ", id, " passes with differences")
	return made
}
func (log *journal) identify(recorded any) object {
	lines, nodes := [][]string{}, index(arr(recorded, "nodes"), "node")
	each(keys(log.gpus), func(name string) { require(num(log.gpus, name) == 0 || nodes[name] != nil, "identity: no ", name) })
	for name, node := range nodes {
		right := get(node, "uid") == str(log.nodes[name], "uid") && get(node, "systemUuid") == str(log.nodes[name], "systemUuid")
		require(right && (num(log.gpus, name) > 0 || len(arr(node, "gpus")) > 0), "report.json: identity: another node")
		line := []string{token(str(node, "uid")), token(str(node, "systemUuid"))}
		each(arr(node, "gpus"), func(gpu any) { line = append(line, token(str(gpu, "uuid"))+" "+str(gpu, "serial")) })
		lines = append(lines, line)
	}
	slices.SortFunc(lines, slices.Compare)
	content := []byte(canonical(object{"caSha256": log.authority, "kubeSystemUid": token(log.uid), "nodes": lines}))
	return object{"sha256": digestOf(content), "nodes": get(recorded, "nodes"), "caSha256": log.authority, "kubeSystemUid": log.uid}
}
func token(id string) string { return pick(tokens.MatchString(id), id, "sha256:"+digestOf([]byte(id))) }

// conclude writes the verdicts on requirements and on the run, which follow from those on checks.
func conclude(made, recorded object) {
	ran, counts, proven, entries := index(arr(made, "steps"), "id"), object{}, object{}, []any{}
	isRequired := func(one any) bool { return get(one, "required") == true }
	counted := slices.DeleteFunc(slices.Clone(arr(made, "steps")), func(one any) bool { return !isRequired(one) })
	each(counted, func(one any) { counts[str(one, "verdict")] = digits(num(counts, str(one, "verdict")) + 1) })
	executed := num(counts, "PASS") + num(counts, "FAIL") + num(counts, "WAIVED")
	made["coverage"] = object{"steps": digits(len(ran)), "required": digits(len(counted)), "executed": digits(executed), "byVerdict": counts}
	var part, applying, grave []any
	for _, one := range arr(made, "requirements") {
		entry, its, why := clone(one), []any{}, get(one, "notApplicable")
		for _, check := range arr(one, "checks") {
			step := ran[text(check)]
			proven[text(check)] = true
			its = append(its, pick(step == nil, any("INCONCLUSIVE"), pick(isRequired(step), get(step, "verdict"), nil)))
		}
		entry["verdict"] = pick(why == "", worst(its...), "NOT_APPLICABLE")
		entry["reason"] = pick(why == "", get(arr(recorded, "requirements")[len(entries)], "reason"), why)
		applying = append(applying, pick(why == "", entry["verdict"], nil))
		part = append(part, pick(entry["inPart"] == true, applying[len(entries)], nil))
		entries = append(entries, entry)
	}
	each(counted, func(one any) { grave = append(grave, pick(proven[str(one, "id")] == nil, get(one, "verdict"), nil)) })
	grave = slices.DeleteFunc(append(grave, applying...), func(one any) bool { return one != "ERROR" && one != "FAIL" })
	grave = append(grave, pick(len(arr(made, "scope.deviations")) > 0 || made["interrupted"] != "", any("INCONCLUSIVE"), nil))
	part = slices.DeleteFunc(part, func(one any) bool { return one == nil })
	verdict, passed, waived, about := ofRun(part, grave), 0, 0, []string{}
	each(part, func(one any) { passed, waived = passed+number(one == "PASS"), waived+number(one == "WAIVED") })
	each(arr(made, "scope.parts"), func(one any) { about = append(about, one.(string)) })
	of := cmp.Or(strings.Join(about, ", "), "all that apply to the profile "+str(made, "scope.profile"))
	whole := fmt.Sprintf("PASS of %d of %d requirements: %s", passed, len(entries), of)
	less := fmt.Sprintf("%s: %d of the %d requirements asked for passed%s (%s)", verdict, passed, len(part), pick(waived > 0, fmt.Sprintf(", %d WAIVED", waived), ""), of)
	made["verdict"], made["acceptance"], made["requirements"] = verdict, ofRun(applying, grave), entries
	made["headline"] = pick(verdict == "PASS", whole, less)
}
func worst(verdicts ...any) any {
	absent := func(one any) bool { return !slices.Contains(verdicts, one) }
	return append(slices.DeleteFunc(slices.Clone(gravest), absent), "INCONCLUSIVE")[0]
}
func ofRun(verdicts, grave []any) any {
	unproven := pick(slices.Contains(verdicts, any("PASS")), []any{}, []any{"INCONCLUSIVE"})
	return worst(slices.Concat(verdicts, grave, unproven)...)
}

// checkStatement returns the signatures of other keys in words: only their keys can tell whether they are made up.
func checkStatement(directory string, needed []string, report object) (unknown string) {
	path := filepath.Join(directory, "statement.json")
	if _, err := os.Lstat(path); os.IsNotExist(err) && len(needed) == 0 {
		return "; NOT SIGNED"
	}
	envelope := parse(read(path, 1<<20), "Envelope")
	payload, kind, statement := base64Of(envelope["payload"]), str(envelope, "payloadType"), any(nil)
	require(json.Unmarshal(payload, &statement) == nil, "statement.json: no statement")
	notes, known := arr(statement, "predicate.notes"), []any{"catalogue", "figures", "redacted", "titles", "version"}
	each(arr(report, "scenarios"), func(one any) { known = append(known, "scenario:"+str(one, "id")) })
	each(notes, func(note any) { require(slices.Contains(known, note), "statement.json: no note: ", note) })
	right := slices.Contains(notes, any("redacted")) == (report["redacted"] != "")
	expected := object{"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://muster.dev/acceptance/v1"}
	predicate, subjects := certificate(report, arr(statement, "predicate.hosts")), []any{}
	each([]string{"manifest.sha256", "report.json"}, func(name string) {
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": digestOf(read(filepath.Join(directory, name), 1<<30))}})
	})
	predicate["notes"], expected["predicate"], expected["subject"] = append([]any{}, notes...), predicate, subjects
	require(right && kind == "application/vnd.in-toto+json" && canonical(expected) == string(payload), "statement.json: of another report")
	covered, signatures := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload), map[string][]byte{}
	for id, one := range index(arr(envelope, "signatures"), "keyid") {
		signatures[id] = base64Of(get(one, "sig"))
		require(digest.MatchString(id) && len(signatures[id]) == ed25519.SignatureSize, "statement.json: no signature")
	}
	require(len(signatures) > 0, "statement.json: has no signature")
	unchecked := maps.Clone(signatures)
	each(needed, func(file string) {
		block, _ := pem.Decode(read(file, 1<<20))
		parsed, _ := x509.ParsePKIXPublicKey(block.Bytes)
		der, _ := x509.MarshalPKIXPublicKey(parsed)
		require(ed25519.Verify(parsed.(ed25519.PublicKey), covered, signatures[digestOf(der)]), "statement.json: no signature of the key")
		delete(unchecked, digestOf(der))
	})
	return pick(len(unchecked) > 0, "; NOT CHECKED: the signature of "+strings.Join(keys(unchecked), ", "), "")
}
func base64Of(value any) []byte {
	content, err := base64.StdEncoding.DecodeString(value.(string))
	require(err == nil && base64.StdEncoding.EncodeToString(content) == value, "statement.json: no base64")
	return content
}

// certificate returns the statements of the first page, which are signed.
func certificate(report object, stated []any) object {
	made, layers, limits, byName, its := object{"hosts": hostsOf(report, stated)}, []any{}, []any{}, map[string]object{}, get(report, "scope.hosts.baseline")
	for _, pair := range strings.Fields(`acceptance=acceptance verdict=verdict headline=headline summary=summary interrupted=interrupted redacted=redacted profile=scope.profile profileTitle=scope.profileTitle parts=scope.parts catalogueSha256=scope.catalogueSha256
		waivers=scope.waivers deviations=scope.deviations day=scope.today site=scope.hosts.site.name target=target.kind kubernetes=cluster.kubernetes gpus=cluster.gpus muster=tool.version run=volatile.run.id started=volatile.run.started
		ended=volatile.run.ended identitySha256=identity.sha256 kubeSystemUid=identity.kubeSystemUid caSha256=identity.caSha256 checksExecuted=coverage.executed checksRequired=coverage.required`) {
		key, path, _ := strings.Cut(pair, "=")
		none := map[string]any{"target": "unknown", "kubernetes": "unknown", "gpus": digits(0)}[key]
		made[key] = pick(get(report, path) != nil, get(report, path), pick(none != nil, none, any("")))
	}
	for _, one := range arr(report, "requirements") {
		part, _, _ := strings.Cut(str(one, "id"), ".")
		why, verdict := str(one, "notApplicable"), str(one, "verdict")
		layer := object{"layer": part, "inPart": false, "counts": object{}, "verdict": "NOT_APPLICABLE"}
		layers = append(layers, pick(byName["layer "+part] == nil, []any{layer}, nil)...)
		limit := object{"reason": why, "requirements": []any{}}
		limits = append(limits, pick(why != "" && byName["limit "+why] == nil, []any{limit}, nil)...)
		layer, limit = pick(byName["layer "+part] == nil, layer, byName["layer "+part]), pick(byName["limit "+why] == nil, limit, byName["limit "+why])
		byName["layer "+part], byName["limit "+why] = layer, limit
		layer["counts"].(object)[verdict] = digits(num(layer["counts"], verdict) + 1)
		layer["inPart"], limit["requirements"] = layer["inPart"] == true || get(one, "inPart") == true, append(arr(limit, "requirements"), get(one, "id"))
		layer["verdict"] = pick(why == "", worst(layer["verdict"], verdict), layer["verdict"])
	}
	certified := object{"run": get(its, "run"), "started": get(its, "started"), "verdict": get(its, "verdict"), "manifestSha256": get(its, "manifestSha256"), "identitySha256": get(its, "identitySha256")}
	maps.Copy(made, pick(its != nil, object{"baseline": certified}, nil))
	made["limits"], made["layers"] = limits, layers
	return made
}
func hostsOf(report object, stated []any) []any {
	hosts := []any{}
	for number, node := range arr(report, "identity.nodes") {
		gpus, words := []any{}, append(stated, object{})[min(number, len(stated))]
		each(arr(node, "gpus"), func(gpu any) { gpus = append(gpus, cmp.Or(str(gpu, "serial"), str(gpu, "uuid"))) })
		hosts = append(hosts, object{"name": get(node, "node"), "uid": get(node, "uid"), "systemUuid": get(node, "systemUuid"), "gpus": gpus,
			"driver": str(words, "driver"), "gpuModel": str(words, "gpuModel")})
	}
	return append(hosts, stated[min(len(hosts), len(stated)):]...)
}
