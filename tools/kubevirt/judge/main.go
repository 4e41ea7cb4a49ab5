// Command judge answers what KubeVirt itself makes of an object: its defaults, or the causes of its refusal, or the Pods
// that its template service renders for it.
//
// It reads one JSON question a line and writes one JSON answer a line, in the same order. No cluster is needed: what
// KubeVirt would look up is part of the question. Start-up costs seconds, so one process should answer many questions.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"kubevirt.io/client-go/log"
)

// question is one line of input.
type question struct {
	ID json.RawMessage `json:"id"`
	// Operation is CREATE (also when left out) or UPDATE.
	Operation string `json:"operation"`
	// Object is the VirtualMachine or VirtualMachineInstance to judge.
	Object json.RawMessage `json:"object"`
	// Old is the version before, for an update.
	Old json.RawMessage `json:"old"`
	// KubeVirt configures the cluster; without it everything is at its default.
	KubeVirt json.RawMessage `json:"kubevirt"`
	// Objects is a list of what else the cluster holds: presets, instance types, claims and so on.
	Objects json.RawMessage `json:"objects"`
	// User is who asks; without it somebody with no special rights.
	User string `json:"user"`

	// Pod asks for a Pod instead of a verdict: launcher, first-consumer, migration-target, attachment or trigger. The object
	// is a VirtualMachineInstance then, taken as it is.
	Pod string `json:"pod"`
	// Launcher is the instance's Pod, for all but the first two.
	Launcher json.RawMessage `json:"launcher"`
	// Migration is the VirtualMachineInstanceMigration, for its target.
	Migration json.RawMessage `json:"migration"`
	// Volumes names the instance's volumes to attach, or the one to trigger.
	Volumes []string `json:"volumes"`
	// PullSecret is virt-controller's flag of that name; the same for all questions about one cluster.
	PullSecret string `json:"pullSecret"`
}

// answer is one line of output.
type answer struct {
	ID json.RawMessage `json:"id"`
	// Object is the object as KubeVirt's mutating webhook leaves it, or the Pod.
	Object json.RawMessage `json:"object,omitempty"`
	// Causes are all of KubeVirt's reasons for refusing it, in KubeVirt's order.
	Causes []cause `json:"causes"`
	// Schema is what KubeVirt's own schema check says. When it says anything, nothing else was looked at.
	Schema   []string `json:"schema,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Error is a refusal without causes, or why there is no answer.
	Error string `json:"error,omitempty"`
	// Panic is where KubeVirt failed to answer at all.
	Panic string `json:"panic,omitempty"`
}

// cause is one reason for a refusal.
type cause struct {
	Type    string `json:"type"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

func main() {
	log.Log.SetIOWriter(io.Discard)
	// Answers are short-lived garbage; memory is cheaper here than collecting it often.
	debug.SetGCPercent(800)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

// serve answers with all processors at work, in the order of the questions.
func serve(in io.Reader, out io.Writer) error {
	type job struct {
		line   []byte
		result chan []byte
	}
	workers := runtime.GOMAXPROCS(0)
	jobs, order := make(chan job), make(chan job, 4*workers)
	for range workers {
		cluster, err := newCluster()
		if err != nil {
			return err
		}
		go func() {
			for job := range jobs {
				job.result <- cluster.answer(job.line)
			}
		}()
	}

	var failed error
	go func() {
		defer close(order)
		defer close(jobs)
		lines := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 1 {
				next := job{line, make(chan []byte, 1)}
				order <- next
				jobs <- next
			}
			if err != nil {
				if err != io.EOF {
					failed = fmt.Errorf("cannot read a question: %w", err)
				}
				return
			}
		}
	}()

	answers := bufio.NewWriterSize(out, 1<<20)
	for next := range order {
		if _, err := answers.Write(append(<-next.result, '\n')); err != nil {
			return fmt.Errorf("cannot write an answer: %w", err)
		}
		// Whoever asks one question at a time waits for the answer; whoever sends many gets them in large pieces.
		if len(order) == 0 {
			if err := answers.Flush(); err != nil {
				return fmt.Errorf("cannot write an answer: %w", err)
			}
		}
	}
	return failed
}

// answer never fails: one bad object must not take the other answers with it.
func (c *cluster) answer(line []byte) []byte {
	text, err := json.Marshal(c.judged(line))
	if err != nil {
		text, _ = json.Marshal(answer{Error: fmt.Sprintf("cannot write the answer as JSON: %v", err)})
	}
	return text
}

func (c *cluster) judged(line []byte) (result answer) {
	var asked question
	defer func() {
		if reason := recover(); reason != nil {
			result = answer{ID: asked.ID, Panic: fmt.Sprintf("%v\n%s", reason, debug.Stack())}
		}
	}()
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: fmt.Sprintf("not a question: %v", err)}
	}
	answer := c.judge
	if asked.Pod != "" {
		answer = c.render
	}
	result, err := answer(&asked)
	if err != nil {
		result.Error = err.Error()
	}
	result.ID = asked.ID
	return result
}
