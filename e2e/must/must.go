// Package must is for drills. A drill ends at its first error, as a test does.
package must

import "fmt"

// failure carries the error that ends a drill.
type failure struct{ error }

// Do ends the drill if there is an error. The prefix of the error, if given, is a format with its arguments.
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

// Fail ends the drill.
func Fail(format string, args ...any) { Do(fmt.Errorf(format, args...)) }

// Try runs a part of a drill in this goroutine, and returns the error that ended it.
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
