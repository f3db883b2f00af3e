// Package must is for drills, tools of tests, and conditions that tests await. They end at their first error, as tests
// do.
package must

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// failure carries the error that ends a program.
type failure struct{ error }

// Do ends the program if there is an error. The prefix of the error, if given, is a format with its arguments.
func Do(err error, prefix ...any) {
	if err == nil {
		return
	}
	if len(prefix) > 0 {
		err = fmt.Errorf("%s: %w", fmt.Sprintf(fmt.Sprint(prefix[0]), prefix[1:]...), err)
	}
	panic(failure{err})
}

// Get returns a value unless there is an error.
func Get[T any](value T, err error) T {
	Do(err)
	return value
}

// Fail ends the program.
func Fail(format string, args ...any) { Do(fmt.Errorf(format, args...)) }

// Try runs a part of a program in this goroutine, and returns the error that ended it.
func Try(part func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	part()
	return nil
}

// Run runs a program until it is done or interrupted, and ends this process.
func Run(name string, program func(context.Context)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Try(func() { program(ctx) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ErrorIf returns an error if a condition holds.
func ErrorIf(condition bool, format string, args ...any) error {
	if condition {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// FailIf ends the program if a condition holds.
func FailIf(condition bool, format string, args ...any) { Do(ErrorIf(condition, format, args...)) }

// Return is Try for a part that ends with a value.
func Return[T any](part func() T) (value T, err error) {
	err = Try(func() { value = part() })
	return value, err
}
