package register

import (
	"errors"
	"testing"

	"github.com/leasecast/leasecast/api/lease/clock"
)

func TestOnlyTheFencedRegisterRefuses(t *testing.T) {
	s := Serve(&clock.System{})
	t.Cleanup(s.Close)
	c := &Client{URL: s.URL}
	for _, step := range []struct {
		write State
		want  error
		reads State
	}{
		{State{5, "a"}, nil, State{5, "a"}},
		{State{5, "b"}, nil, State{5, "b"}},
		{State{7, "c"}, nil, State{7, "c"}},
		{State{6, "d"}, ErrRefused, State{7, "c"}},
		{State{7, "e"}, nil, State{7, "e"}},
	} {
		if err := c.Write(t.Context(), "shop", step.write); !errors.Is(err, step.want) {
			t.Errorf("write %+v: want %v, got %v", step.write, step.want, err)
		}
		if got, err := c.Read(t.Context(), "shop"); err != nil || got != step.reads {
			t.Errorf("after %+v: want %+v, read %+v, %v", step.write, step.reads, got, err)
		}
	}
	if got, err := c.Read(t.Context(), "bank"); err != nil || got != (State{}) {
		t.Errorf("a namespace that nobody wrote to: read %+v, %v", got, err)
	}
	writes := s.Writes()
	if len(writes) != 5 || writes[3].Taken || !writes[4].Taken || writes[3].Value != "d" {
		t.Errorf("the store saw %+v", writes)
	}
	s.Forget(writes[4].At)
	if left := s.Writes(); len(left) != 1 || left[0] != writes[4] {
		t.Errorf("after Forget: %+v", left)
	}
}
