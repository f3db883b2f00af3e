package must

import (
	"errors"
	"testing"
)

func TestTryReturnsTheErrorThatEndedAPart(t *testing.T) {
	cause := errors.New("it broke")
	for name, part := range map[string]func(){
		"Do":            func() { Do(cause) },
		"Do, prefixed":  func() { Do(cause, "step %d", 2) },
		"Get":           func() { _ = Get(1, cause) },
		"Fail":          func() { Fail("step: %w", cause) },
		"within a part": func() { Do(Try(func() { Do(cause) })) },
	} {
		if err := Try(part); !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %v", name, err, cause)
		}
	}
	if err := Try(func() { Do(cause, "100 %% of %s", "it") }); err.Error() != "100 % of it: it broke" {
		t.Errorf("a prefix: %v", err)
	}
	if err := Try(func() { Do(nil); _ = Get(1, nil) }); err != nil {
		t.Errorf("without an error: %v", err)
	}
}

func TestTryRecoversNoOtherPanic(t *testing.T) {
	defer func() {
		if p := recover(); p != "another" {
			t.Errorf("recovered %v, want the panic", p)
		}
	}()
	_ = Try(func() { panic("another") })
}
