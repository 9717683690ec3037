package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A span is the time for which a hold is certain. It may be empty.
type span struct {
	*Hold
	from, to    Time
	exclusiveTo Time // no later than to; from if it is shared
}

func (s *span) String() string {
	mode := "exclusive"
	if s.Shared {
		mode = "shared"
	}
	text := fmt.Sprintf("%s by %s of process %d on session %d, token %d, asked for at %d, held from %d", mode, s.How, s.Process, s.Session, s.Token, s.Asked, s.from)
	if s.Downgrading != 0 {
		text += fmt.Sprintf(", downgraded at %d", s.Downgrading)
	}
	return text + fmt.Sprintf(" to %d", s.to)
}

// Check returns what is wrong with the holds.
func Check(holds []Hold, faults []Fault) (wrong []error) {
	byProcess := map[int][]*Fault{}
	for i := range faults {
		byProcess[faults[i].Process] = append(byProcess[faults[i].Process], &faults[i])
	}
	byKey := map[string][]*span{}
	for i := range holds {
		h := &holds[i]
		s := &span{Hold: h, from: h.Got}
		s.to = min(h.until(byProcess[0]), h.until(byProcess[h.Process]))
		if !h.Shared {
			s.exclusiveTo = s.to
			if h.Downgrading != 0 {
				s.exclusiveTo = min(s.to, h.Downgrading)
			}
		}
		byKey[h.Key] = append(byKey[h.Key], s)
	}
	for _, spans := range byKey {
		slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
		wrong = append(wrong, exclusion(spans)...)
		wrong = append(wrong, order(spans)...)
	}
	return wrong
}

// exclusion finds spans that overlap. If there are none then the history is one that a lock
// can have: whatever was granted was granted at the beginning of its span, and released
// at the end. And if there are, no times of grants and releases would do.
func exclusion(spans []*span) (wrong []error) {
	var any, exclusive *span           // of those before, that which goes on for longest
	var exclusiveToken, anyToken *span // with the largest token: of those before the last exclusive one, it included; of all
	for _, s := range spans {
		if s.to <= s.from {
			continue
		}
		isExclusive := s.exclusiveTo > s.from
		before, end := exclusive, Time(0)
		if exclusive != nil {
			end = exclusive.exclusiveTo
		}
		if isExclusive && any != nil && any.to > s.from {
			before, end = any, any.to
		}
		if end > s.from {
			wrong = append(wrong, fmt.Errorf("key %s: two holders at once, for %v:\n\t%v\n\t%v",
				s.Key, min(end, s.to).Since(s.from), before, s))
		}
		// Who excluded each other came one after the other, and so did their tokens.
		earlier := exclusiveToken
		if isExclusive {
			earlier = anyToken
		}
		if s.Token != 0 {
			if earlier != nil && earlier.Token >= s.Token {
				wrong = append(wrong, fmt.Errorf("key %s: the next holder's token is no larger:\n\t%v\n\t%v", s.Key, earlier, s))
			}
			if anyToken == nil || s.Token > anyToken.Token {
				anyToken = s
			}
		}
		if isExclusive {
			exclusiveToken = anyToken // whoever was before it
		}
		if any == nil || s.to > any.to {
			any = s
		}
		if isExclusive && (exclusive == nil || s.exclusiveTo > exclusive.exclusiveTo) {
			exclusive = s
		}
	}
	return wrong
}

// order finds tokens that were given twice, or are no larger than one which was given before
// they were asked for, whatever became of its holder. The spans are in the order of their beginnings.
func order(spans []*span) (wrong []error) {
	asked := slices.Clone(spans)
	slices.SortFunc(asked, func(a, b *span) int { return cmp.Compare(a.Asked, b.Asked) })
	var most *span
	given := map[uint64]*span{}
	for _, s := range asked {
		for len(spans) > 0 && spans[0].Got < s.Asked {
			if most == nil || spans[0].Token > most.Token {
				most = spans[0]
			}
			spans = spans[1:]
		}
		if s.Token == 0 {
			continue
		}
		twice := given[s.Token]
		given[s.Token] = s
		switch {
		case most != nil && most.Token >= s.Token:
			wrong = append(wrong, fmt.Errorf("key %s: a token that was asked for later is no larger:\n\t%v\n\t%v", s.Key, most, s))
		case twice != nil:
			wrong = append(wrong, fmt.Errorf("key %s: a token that was given twice:\n\t%v\n\t%v", s.Key, twice, s))
		}
	}
	return wrong
}

// A Loss is one that a holder was told of.
type Loss struct {
	*Hold
	Fault *Fault // nil: none is known
	Late  time.Duration
}

// Told returns, for each loss, what it came from, and how long after that the holder was told;
// and what is wrong: holders that were not told in time.
func Told(holds []Hold, faults []Fault) (losses []Loss, wrong []error) {
	byProcess := map[int][]*Fault{}
	for i := range faults {
		byProcess[faults[i].Process] = append(byProcess[faults[i].Process], &faults[i])
	}
	for i := range holds {
		h := &holds[i]
		if h.Blind {
			continue
		}
		loss := Loss{Hold: h}
		for _, list := range [][]*Fault{byProcess[0], byProcess[h.Process]} {
			for _, f := range list {
				if !f.struck(h) {
					continue
				}
				if f.Due != 0 && h.Alive > f.Due {
					wrong = append(wrong, fmt.Errorf("key %s: not told of its loss (%s) %v after, nor until %v later: %s, process %d, session %d, held from %d",
						h.Key, f.Kind, f.Due.Since(f.Sent), h.Alive.Since(f.Due), h.How, h.Process, h.Session, h.Got))
				}
				if h.Told > f.Sent && f.Due != 0 && (loss.Fault == nil || f.Sent > loss.Fault.Sent) {
					loss.Fault, loss.Late = f, h.Told.Since(max(f.Sent, h.Got))
				}
			}
		}
		if h.Told != 0 {
			losses = append(losses, loss)
		}
	}
	return losses, wrong
}
