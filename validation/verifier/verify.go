// Command verify checks the directories of acceptance records without muster and without Python.
//
// It is written from docs/record.md alone. It checks the digest of every file, the form and the order of the log, that
// the record repeats what the log says, that the verdicts on requirements and on the run follow from those on checks,
// and the signature. It does not judge events: `muster report verify` does.
//
// Usage: verify [-key customer.pub] DIRECTORY...
// It prints a line for each directory. The exit code is 1 if one is refused.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	maxBytes  = 1 << 30
	maxRecord = 32 << 20
	maxFiles  = 10000
	maxDepth  = 64 // of JSON
	ownLine   = "# sha256 of the lines above: "
)

type object = map[string]any
type refusal string

var (
	manifestLine = regexp.MustCompile(`^([0-9a-f]{64})  (\S.*)$`)
	gravest      = []string{"ERROR", "FAIL", "INCONCLUSIVE", "BLOCKED", "WAIVED", "PASS"}
)

func main() {
	file := flag.String("key", "", "public key of a required signature (Ed25519, PEM)")
	flag.Parse()
	code, required := 0, ed25519.PublicKey(nil)
	if *file != "" {
		required = readKey(*file)
	}
	for _, directory := range flag.Args() {
		why := verify(directory, required)
		if why != "" {
			code = 1
		}
		fmt.Printf("%q: %s\n", directory, cmp.Or(why, "accepted"))
	}
	os.Exit(code)
}

// verify returns why the directory is refused, nothing if it is accepted.
func verify(directory string, required ed25519.PublicKey) (why string) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case refusal:
			why = fmt.Sprintf("refused: %q", string(found))
		default:
			why = fmt.Sprintf("refused: no record: %q", fmt.Sprint(found))
		}
	}()
	checkManifest(directory)
	content := read(filepath.Join(directory, "report.json"), maxRecord)
	report := parse(content)
	require(canonical(report) == string(content), "report.json: not canonical")
	require(number(report["schemaVersion"]) == 3, "report.json: another version")
	checkStatement(directory, report, required)
	checkLog(directory, report)
	checkVerdicts(report)
	return ""
}

func require(holds bool, format string, words ...any) {
	if !holds {
		panic(refusal(fmt.Sprintf(format, words...)))
	}
}

func readKey(path string) ed25519.PublicKey {
	block, _ := pem.Decode(read(path, 1<<20))
	require(block != nil, "%s: no PEM", path)
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, is := parsed.(ed25519.PublicKey)
	require(err == nil && is, "%s: no Ed25519 key", path)
	return public
}

func open(path string, most int64) *os.File {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	require(err == nil, "%s: cannot be read", path)
	status, err := file.Stat()
	require(err == nil && status.Mode().IsRegular() && status.Size() <= most, "%s: no plain file, or too large", path)
	return file
}

func read(path string, most int64) []byte {
	file := open(path, most)
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, most))
	require(err == nil, "%s: cannot be read", path)
	return content
}

func digestFile(path string) string {
	file := open(path, maxBytes)
	defer file.Close()
	hash := sha256.New()
	_, err := io.Copy(hash, io.LimitReader(file, maxBytes))
	require(err == nil, "%s: cannot be read", path)
	return fmt.Sprintf("%x", hash.Sum(nil))
}

func digestOf(content []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

func checkManifest(directory string) {
	present, listed, total := map[string]bool{}, map[string]bool{}, int64(0)
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(directory, path)
		status, err := entry.Info()
		require(err == nil && status.Mode().IsRegular(), "%s: no plain file", name)
		present[name] = true
		total += status.Size()
		require(total <= maxBytes && len(present) <= maxFiles, "too many or too large files")
		return nil
	})
	require(err == nil, "%v", err)
	content := read(filepath.Join(directory, "manifest.sha256"), 4<<20)
	end := bytes.LastIndex(content, []byte(ownLine))
	require(end >= 0 && utf8.Valid(content), "manifest.sha256: no manifest")
	require(string(content[end:]) == ownLine+digestOf(content[:end])+"\n", "manifest.sha256: changed")
	delete(present, "manifest.sha256")
	for _, line := range strings.SplitAfter(string(content[:end]), "\n") {
		if line == "" {
			continue
		}
		match := manifestLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		require(match != nil && strings.HasSuffix(line, "\n"), "manifest.sha256: %s: is no line", line)
		require(present[match[2]] && !listed[match[2]], "%s: is missing, or is listed twice", match[2])
		require(digestFile(filepath.Join(directory, match[2])) == match[1], "%s: changed", match[2])
		listed[match[2]] = true
	}
	for name := range present {
		require(listed[name] || name == "statement.json", "%s: not of this report", name)
	}
	require(listed["report.json"] && listed["events.jsonl"], "the record or its log is missing")
}

func parse(content []byte) object {
	require(utf8.Valid(content), "not UTF-8")
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	found, is := parseValue(decoder, 0).(object)
	_, err := decoder.Token()
	require(is && err == io.EOF, "not one object")
	return found
}

func parseValue(decoder *json.Decoder, depth int) any {
	token, err := decoder.Token()
	require(err == nil && depth <= maxDepth, "no JSON, or nested too deeply")
	if token != json.Delim('{') && token != json.Delim('[') {
		return token
	}
	members, elements := object{}, []any{}
	for decoder.More() {
		name := ""
		if token == json.Delim('{') {
			key, err := decoder.Token()
			require(err == nil, "no JSON")
			name = key.(string)
			_, is := members[name]
			require(!is, "`%s` is there twice", name)
		}
		members[name] = parseValue(decoder, depth+1)
		elements = append(elements, members[name])
	}
	_, err = decoder.Token()
	require(err == nil, "no JSON")
	if token == json.Delim('{') {
		return members
	}
	return elements
}

// canonical writes a value as RFC 8785 does: records have no numbers but integers, and no keys beyond ASCII.
func canonical(value any) string {
	var buffer strings.Builder
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	require(encoder.Encode(value) == nil, "no JSON")
	unescape := strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")
	return unescape.Replace(strings.TrimSuffix(buffer.String(), "\n"))
}

func at(value any, path ...string) any {
	for _, key := range path {
		found, _ := value.(object)
		value = found[key]
	}
	return value
}

func text(value any) string    { found, _ := value.(string); return found }
func list(value any) []any     { found, _ := value.([]any); return found }
func same(one, other any) bool { return reflect.DeepEqual(one, other) }

func number(value any) int64 {
	found, _ := value.(json.Number)
	result, err := found.Int64()
	if err != nil {
		return -1
	}
	return result
}

func checkStatement(directory string, report object, required ed25519.PublicKey) {
	path := filepath.Join(directory, "statement.json")
	if _, err := os.Lstat(path); os.IsNotExist(err) {
		require(required == nil, "statement.json: missing")
		return
	}
	content := read(path, 1<<20)
	envelope := parse(content)
	payload, err := base64.StdEncoding.Strict().DecodeString(text(envelope["payload"]))
	require(err == nil, "statement.json: no base64")
	statement := parse(payload)
	require(canonical(envelope) == string(content) && canonical(statement) == string(payload), "statement.json: not canonical")
	kind := text(envelope["payloadType"])
	known := kind == "application/vnd.in-toto+json" && statement["_type"] == "https://in-toto.io/Statement/v1"
	require(known && statement["predicateType"] == "https://muster.dev/acceptance/v1", "statement.json: another kind")
	subjects := object{}
	for _, subject := range list(statement["subject"]) {
		subjects[text(at(subject, "name"))] = at(subject, "digest", "sha256")
	}
	record, files := digestFile(filepath.Join(directory, "report.json")), digestFile(filepath.Join(directory, "manifest.sha256"))
	ours := object{"report.json": record, "manifest.sha256": files}
	require(same(subjects, ours), "statement.json: of another report")
	checkPredicate(statement["predicate"], report)
	if required == nil {
		return
	}
	der, _ := x509.MarshalPKIXPublicKey(required)
	covered := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
	signed := false
	for _, one := range list(envelope["signatures"]) {
		signature, err := base64.StdEncoding.Strict().DecodeString(text(at(one, "sig")))
		signed = signed || err == nil && at(one, "keyid") == digestOf(der) && ed25519.Verify(required, covered, signature)
	}
	require(signed, "statement.json: no signature of the key")
}

func checkPredicate(predicate any, report object) {
	scope, run, cluster := report["scope"], at(report, "volatile", "run"), report["identity"]
	for name, value := range (object{
		"verdict": report["verdict"], "acceptance": report["acceptance"], "headline": report["headline"],
		"summary": report["summary"], "interrupted": report["interrupted"], "redacted": report["redacted"],
		"profile": at(scope, "profile"), "profileTitle": at(scope, "profileTitle"), "parts": at(scope, "parts"),
		"catalogueSha256": at(scope, "catalogueSha256"), "day": at(scope, "today"),
		"waivers": at(scope, "waivers"), "deviations": at(scope, "deviations"), "run": at(run, "id"),
		"started": at(run, "started"), "ended": at(run, "ended"), "target": at(report, "target", "kind"),
		"kubernetes": at(report, "cluster", "kubernetes"), "gpus": at(report, "cluster", "gpus"),
		"muster": at(report, "tool", "version"), "checksExecuted": at(report, "coverage", "executed"),
		"identitySha256": text(at(cluster, "sha256")), "kubeSystemUid": text(at(cluster, "kubeSystemUid")),
		"caSha256": text(at(cluster, "caSha256")), "checksRequired": at(report, "coverage", "required"),
	}) {
		require(same(at(predicate, name), value), "statement.json: %s is not that of the record", name)
	}
	require(cluster == nil || identity(cluster), "report.json: the identity of the cluster has another digest")
}

// identity says whether the digest of a cluster is that of its parts.
func identity(cluster any) bool {
	nodes := [][]string{}
	for _, node := range list(at(cluster, "nodes")) {
		words := []string{token(at(node, "uid")), token(at(node, "systemUuid"))}
		for _, gpu := range list(at(node, "gpus")) {
			words = append(words, token(at(gpu, "uuid"))+" "+text(at(gpu, "serial")))
		}
		nodes = append(nodes, words)
	}
	slices.SortFunc(nodes, slices.Compare)
	content := object{"caSha256": at(cluster, "caSha256"), "kubeSystemUid": token(at(cluster, "kubeSystemUid")), "nodes": nodes}
	return digestOf([]byte(canonical(content))) == at(cluster, "sha256")
}

func token(value any) string {
	if name := text(value); name != "" && !strings.HasPrefix(name, "sha256:") {
		return "sha256:" + digestOf([]byte(name))
	}
	return text(value)
}

func checkLog(directory string, report object) {
	file := open(filepath.Join(directory, "events.jsonl"), maxBytes)
	defer file.Close()
	hash, lines := sha256.New(), bufio.NewReaderSize(file, maxRecord)
	parts, ended, gpus, now, events := map[string]object{}, map[string]object{}, object{}, int64(0), int64(0)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		require(err == nil, "events.jsonl: a line is cut, or too long")
		hash.Write(line)
		entry := parse(line)
		kind, time, name := text(entry["entry"]), entry["tMs"], text(entry["check"])
		first := parts["opened"] == nil
		require(first == (kind == "opened") && parts["closed"] == nil, "events.jsonl: entries before or after the run")
		switch kind {
		case "observed":
			events++
			time = at(entry, "event", "tMs")
			if at(entry, "event", "event") == "node" {
				gpus[text(at(entry, "event", "node"))] = at(entry, "event", "gpus")
			}
		case "described":
			require(describes(gpus, entry["cluster"]), "events.jsonl: other nodes are described than were seen")
		case "ended":
			time = entry["endedMs"]
			require(ended[name] == nil && isWindow(entry["window"], events), "events.jsonl: %s cannot end there", name)
			ended[name] = entry
		case "closed":
			time = entry["durationMs"]
		default:
			require(kind == "opened" || kind == "began" || kind == "scenario", "events.jsonl: %s is no entry", kind)
		}
		parts[kind] = entry
		require(time == nil || number(time) >= now, "events.jsonl: its times go back")
		now = max(now, number(time))
	}
	its := at(report, "volatile", "events", "sha256") == fmt.Sprintf("%x", hash.Sum(nil))
	require(its && number(at(report, "volatile", "events", "events")) == events, "events.jsonl: of another record")
	require(parts["closed"] != nil && parts["described"] != nil, "events.jsonl: not of a whole run")
	checkRepeats(report, parts, ended)
}

func describes(gpus object, cluster any) bool {
	total, described := int64(0), object{}
	for _, node := range list(at(cluster, "nodes")) {
		described[text(at(node, "name"))] = at(node, "gpus")
	}
	for name, its := range gpus {
		total += number(its)
		if number(its) != 0 && !same(described[name], its) {
			return false
		}
	}
	return number(at(cluster, "gpus")) == total
}

func isWindow(window any, events int64) bool {
	from, start, until := at(window, "fromEvent"), at(window, "startEvent"), at(window, "untilEvent")
	rising := []int64{0, number(from), number(start), number(until), events}
	return window == nil || slices.IsSorted(rising)
}

// checkRepeats compares the record with what the log says before, during and after the run.
func checkRepeats(report object, parts, ended map[string]object) {
	opened := parts["opened"]["report"]
	run, before, described, closed := at(report, "volatile", "run"), at(opened, "volatile", "run"), parts["described"], parts["closed"]
	started, err := time.Parse(time.RFC3339, text(at(run, "started")))
	over, wrong := time.Parse(time.RFC3339, text(closed["ended"]))
	day := started.UTC().Format(time.DateOnly) == at(report, "scope", "today")
	require(err == nil && wrong == nil && day && !over.Before(started), "report.json: its times do not agree")
	for name, pair := range map[string][2]any{
		"scope": {report["scope"], at(opened, "scope")}, "tool": {report["tool"], at(opened, "tool")},
		"errata": {report["errata"], at(opened, "errata")}, "mutants": {report["mutants"], at(opened, "mutants")},
		"redacted": {report["redacted"], at(opened, "redacted")}, "target": {report["target"], described["target"]},
		"cluster": {report["cluster"], described["cluster"]}, "interrupted": {report["interrupted"], closed["interrupted"]},
		"ended": {at(run, "ended"), closed["ended"]}, "durationMs": {at(run, "durationMs"), closed["durationMs"]},
		"id": {at(run, "id"), at(before, "id")}, "argv": {at(run, "argv"), at(before, "argv")},
		"started": {at(run, "started"), at(before, "started")}, "kind": {at(opened, "target", "kind"), at(report, "target", "kind")},
	} {
		require(same(pair[0], pair[1]), "report.json: %s is not that of the log", name)
	}
	for part, follows := range map[string]string{
		"requirements": " verdict reason ", "scenarios": " volatile ",
		"steps": " verdict reason required circumstances actual differences oracle oracleDifferences volatile ",
	} {
		asked := object{}
		for _, one := range list(at(opened, part)) {
			asked[text(at(one, "id"))] = one
		}
		require(part == "steps" || len(asked) == len(list(report[part])), "report.json: not all %s are there", part)
		for _, one := range list(report[part]) {
			for name, value := range one.(object) {
				was := at(asked[text(at(one, "id"))], name)
				require(strings.Contains(follows, " "+name+" ") || same(value, was), "report.json: %s: another %s was asked for", at(one, "id"), name)
			}
		}
	}
	for _, step := range list(report["steps"]) {
		end := ended[text(at(step, "id"))]
		for _, name := range []string{"startedMs", "endedMs", "commands", "window"} {
			require(end == nil || same(at(step, "volatile", name), end[name]), "report.json: %s: %s is not that of the log", at(step, "id"), name)
		}
		require(end == nil || same(at(step, "circumstances"), end["circumstances"]), "report.json: %s: other circumstances", at(step, "id"))
	}
}

func checkVerdicts(report object) {
	verdicts, counts, required, proven := map[string]string{}, map[string]int64{}, int64(0), map[string]bool{}
	for _, step := range list(report["steps"]) {
		id, verdict := text(at(step, "id")), text(at(step, "verdict"))
		wrong := len(list(at(step, "differences"))) + len(list(at(step, "volatile", "violations")))
		require(verdict != "PASS" || wrong == 0, "report.json: %s passes with differences", id)
		verdicts[id] = ""
		if at(step, "required") == true {
			verdicts[id] = verdict
			counts[verdict]++
			required++
		}
	}
	var part, applying, grave []string
	passed := 0
	for _, entry := range list(report["requirements"]) {
		var its []string
		for _, check := range list(at(entry, "checks")) {
			if _, ran := verdicts[text(check)]; !ran {
				verdicts[text(check)] = "INCONCLUSIVE"
			}
			proven[text(check)] = true
			its = append(its, verdicts[text(check)])
		}
		verdict := worst(its)
		if at(entry, "notApplicable") != "" {
			verdict = "NOT_APPLICABLE"
		} else if applying = append(applying, verdict); at(entry, "inPart") == true {
			part = append(part, verdict)
			if verdict == "PASS" {
				passed++
			}
		}
		require(at(entry, "verdict") == verdict, "report.json: %s is %s by its checks", at(entry, "id"), verdict)
	}
	every := slices.Clone(applying)
	for id, verdict := range verdicts {
		if !proven[id] {
			every = append(every, verdict)
		}
	}
	for _, verdict := range every {
		if verdict == "ERROR" || verdict == "FAIL" {
			grave = append(grave, verdict)
		}
	}
	if len(list(at(report, "scope", "deviations"))) > 0 || report["interrupted"] != "" {
		grave = append(grave, "INCONCLUSIVE")
	}
	follows := report["verdict"] == ofRun(part, grave) && report["acceptance"] == ofRun(applying, grave)
	require(follows, "report.json: the verdict is not that of the requirements")
	headline := strings.HasPrefix(text(report["headline"]), text(report["verdict"]))
	headline = headline && strings.Contains(text(report["headline"]), fmt.Sprintf(" %d of ", passed))
	require(headline, "report.json: the headline is not that of the verdict")
	coverage := at(report, "coverage")
	executed := counts["PASS"] + counts["FAIL"] + counts["WAIVED"]
	numbers := number(at(coverage, "required")) == required && number(at(coverage, "executed")) == executed
	for verdict, count := range counts {
		numbers = numbers && number(at(coverage, "byVerdict", verdict)) == count
	}
	require(numbers, "report.json: other counts of verdicts")
}

func worst(verdicts []string) string {
	for _, verdict := range gravest {
		if slices.Contains(verdicts, verdict) {
			return verdict
		}
	}
	return "INCONCLUSIVE"
}

func ofRun(verdicts, grave []string) string {
	if !slices.Contains(verdicts, "PASS") {
		grave = append(slices.Clone(grave), "INCONCLUSIVE")
	}
	return worst(slices.Concat(verdicts, grave))
}
