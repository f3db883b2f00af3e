package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/harness"
)

func TestLogsOfProcessesThatComeAndGo(t *testing.T) {
	folder := t.TempDir()
	start := func() (*os.File, *acts.Log) {
		t.Helper()
		file, err := acts.Create(folder)
		if err != nil {
			t.Fatal(err)
		}
		return file, acts.NewLog("east", file)
	}
	l := followLogs(folder)
	read := func() (finished, unfinished int) {
		t.Helper()
		all, err := l.acts()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.End == harness.Unfinished {
				unfinished++
			} else {
				finished++
			}
		}
		return finished, unfinished
	}
	do := func(log *acts.Log, act func() error) {
		if err := log.Do(context.Background(), "print", managed, "book", act); err != nil {
			t.Error(err)
		}
	}
	file, log := start()
	do(log, func() error { return nil })
	second, other := start()
	defer func() { _ = second.Close() }()
	do(log, func() error {
		if f, u := read(); f != 1 || u != 1 {
			t.Errorf("%d finished and %d unfinished acts, want 1 and 1", f, u)
		}
		return file.Close() // it ends in the middle of its act, whose end it cannot write any more
	})
	if f, u := read(); f != 2 || u != 0 {
		t.Errorf("%d finished and %d unfinished acts, want 2 and 0: the process is gone", f, u)
	}
	do(other, func() error { return nil })
	if f, u := read(); f != 3 || u != 0 {
		t.Errorf("%d finished and %d unfinished acts, want 3 and 0", f, u)
	}
	if err := forget(folder); err != nil {
		t.Fatal(err)
	}
	if files, err := acts.Logs(folder); err != nil || len(files) != 1 {
		t.Errorf("%v %v, want the log of the process that lives", files, err)
	}
}

func TestALogThatMakesNoSenseIsAnError(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/x.acts", bytes.Repeat([]byte("no JSON\n"), 2), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := followLogs(folder).acts(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
