package command

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stat is a part of what /proc shows of a process.
type stat struct {
	pid, parent int
	zombie      bool
	started     uint64 // in ticks since the machine was started
}

// readStat reads the stat of a process.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name before it may contain anything
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat is %q", pid, text)
	}
	s := stat{pid: pid, zombie: fields[0] == "Z"}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	s.started, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// childrenOf lists the children of a process, adopted ones included, that were started at since or later.
func childrenOf(parent int, since uint64) (all []stat, err error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // no process
		}
		if s, err := readStat(pid); err == nil && s.parent == parent && s.started >= since { // with an error it is gone
			all = append(all, s)
		}
	}
	return all, nil
}

// killChildOf kills a process if it is a child of parent. The pidfd prevents that the pid becomes another process in
// between.
func killChildOf(parent, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone
	}
	defer func() { _ = unix.Close(fd) }()
	if s, err := readStat(pid); err == nil && s.parent == parent {
		_ = unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0)
	}
}
