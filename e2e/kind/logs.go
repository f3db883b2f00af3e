package main

import (
	"os"
	"sync"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/harness"
)

// logs follows the act logs of all guestbooks, those of processes that came and went included.
type logs struct {
	folders []string

	mu    sync.Mutex
	files map[string]*harness.ActLog
	ended map[string]bool
}

func followLogs(folders ...string) *logs {
	return &logs{folders: folders, files: map[string]*harness.ActLog{}, ended: map[string]bool{}}
}

// acts returns all acts so far. What a process was doing when it ended has ended with it.
func (l *logs) acts() (all []harness.Act, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, folder := range l.folders {
		files, err := acts.Logs(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			of, err := l.of(file)
			if err != nil {
				return nil, err
			}
			all = append(all, of...)
		}
	}
	return all, nil
}

func (l *logs) of(file string) ([]harness.Act, error) {
	log := l.files[file]
	if log == nil {
		log = harness.NewActLog(file)
		l.files[file] = log
	}
	if !l.ended[file] {
		gone, err := acts.Ended(file) // asked first: then it writes nothing more
		if err != nil {
			return nil, err
		}
		if gone {
			if err := log.Ended(harness.Now().Boot); err != nil {
				return nil, err
			}
			l.ended[file] = true
		}
	}
	return log.Acts()
}

// forget removes the logs of processes that are gone.
func forget(folder string) error {
	files, err := acts.Logs(folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		gone, err := acts.Ended(file)
		if err != nil {
			return err
		}
		if gone {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}
