// Renders JSON lines {"template", "data"} with the real text/template, so that a test can compare.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"sort"
	"strings"
	"text/template"
)

type request struct {
	Template string      `json:"template"`
	Data     interface{} `json:"data"`
}

type answer struct {
	Text  string `json:"text"`
	Error string `json:"error"`
	Stage string `json:"stage"`
}

func plain(value interface{}) interface{} {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []interface{}:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]interface{}:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return value
}

func whole(value interface{}) int64 {
	switch v := value.(type) {
	case int:
		return int64(v)
	case int64:
		return v
	}
	panic(errors.New("not a whole number"))
}

func arithmetic(step func(a, b int64) int64) func(a, b interface{}) int64 {
	return func(a, b interface{}) int64 { return step(whole(a), whole(b)) }
}

func toJSON(value interface{}) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

func keys(m map[string]interface{}) []interface{} {
	names := []string{}
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	found := []interface{}{}
	for _, k := range names {
		found = append(found, k)
	}
	return found
}

var functions = template.FuncMap{
	"add":        arithmetic(func(a, b int64) int64 { return a + b }),
	"sub":        arithmetic(func(a, b int64) int64 { return a - b }),
	"mul":        arithmetic(func(a, b int64) int64 { return a * b }),
	"div":        arithmetic(func(a, b int64) int64 { return a / b }),
	"mod":        arithmetic(func(a, b int64) int64 { return a % b }),
	"toJson":     toJSON,
	"upper":      strings.ToUpper,
	"lower":      strings.ToLower,
	"title":      strings.Title,
	"trim":       strings.TrimSpace,
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"contains":   func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix":  func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix":  func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"replace":    func(old, new, s string) string { return strings.ReplaceAll(s, old, new) },
	"split":      func(by, s string) []string { return strings.Split(s, by) },
	"join":       func(by string, list []string) string { return strings.Join(list, by) },
	"keys":       keys,
	"hasKey":     func(m map[string]interface{}, k string) bool { _, ok := m[k]; return ok },
	"default": func(fallback, value interface{}) interface{} {
		if truth, _ := template.IsTrue(value); truth {
			return value
		}
		return fallback
	},
}

func render(r request) (a answer) {
	defer func() {
		if trouble := recover(); trouble != nil {
			a = answer{Error: "panic", Stage: "run"}
		}
	}()
	parsed, err := template.New("t").Funcs(functions).Parse(r.Template)
	if err != nil {
		return answer{Error: err.Error(), Stage: "parse"}
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, plain(r.Data)); err != nil {
		return answer{Error: err.Error(), Stage: "run"}
	}
	return answer{Text: out.String()}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		var r request
		if err := decoder.Decode(&r); err != nil {
			return
		}
		encoded, _ := json.Marshal(render(r))
		out.Write(append(encoded, '\n'))
		out.Flush()
	}
}
