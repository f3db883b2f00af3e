// Package chosen is compiled into the tests of code with generated mutants: package mutate
// makes each mutated place ask it whether the mutant of that place is the chosen one. Nothing
// else imports it.
package chosen

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// Variable names the number of the mutant that is chosen. Without it none is.
	Variable = "MUTANT"
	// Reached names a file. The numbers of mutants whose places are reached are appended to it,
	// one a line and each once a process.
	Reached = "MUTANTS_REACHED"
	// Most bounds the numbers.
	Most = 1 << 14
)

// recording is the number that is chosen while a process records what it reaches. No mutant has it.
const recording = -1

var (
	number = chooseOne()
	file   *os.File
	noted  [Most]atomic.Bool
)

func chooseOne() int {
	if path := os.Getenv(Reached); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		file = f
		return recording
	}
	text := os.Getenv(Variable)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || n >= Most {
		panic(Variable + " is " + text + ", want the number of a mutant")
	}
	return n
}

// Is reports whether the mutant is the chosen one.
func Is(n int) bool {
	if number == recording {
		note(n)
	}
	return n == number
}

func note(n int) {
	if !noted[n].Load() && !noted[n].Swap(true) {
		if _, err := file.WriteString(strconv.Itoa(n) + "\n"); err != nil {
			panic(err)
		}
	}
}

// Zero is d, or zero.
func Zero(n int, d time.Duration) time.Duration {
	if Is(n) {
		return 0
	}
	return d
}

// Nil is err, or nil.
func Nil(n int, err error) error {
	if Is(n) {
		return nil
	}
	return err
}

// Other is value, or other.
func Other[T any](n int, value, other T) T {
	if Is(n) {
		return other
	}
	return value
}
