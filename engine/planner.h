// Chooses the rows of the next batch: a pure function of the candidates.
//
// - Decoding rows come first, with one input each. When there are more than fit, they are picked
//   round-robin, reserving one row for prompts when the round reaches the first of them.
// - Prompts and values to score share the rest of the step's budget evenly; the oldest get the part
//   that others do not need.
// - Where the model takes prompts in chunks, a share ends at the end of a chunk or of its values.
//
// No candidate waits for a fuller batch, and none starves.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace runnel {

// A row that could be advanced now.
struct Candidate {
  Want want = Want::kNext;
  int64_t inputs = 1;        // values that it could consume; 1 where `want` is kNext
  int64_t position = -1;     // of its last value so far; -1: it has none
  TimePoint since{};         // when its prompt or its values to score came
  int64_t room = 1;          // kNext: values that its stream has room for
  bool single_step = false;  // kNext: must be examined after every value (stop sequences)
};

struct Share {
  int candidate = 0;  // its index
  int inputs = 0;     // of it in this step
};

struct Plan {
  std::vector<Share> shares;  // in the order of Want: kNext, kScores, kNothing
  int steps = 0;
  int decoding = 0;          // shares that want kNext
  std::vector<int> waiting;  // candidates that do not, oldest first
};

// Fills `plan`, reusing its memory. The round starts at candidate `turn`, which moves on to the one
// that is next.
void plan_batch(std::span<const Candidate> candidates, const ModelLimits& limits, size_t& turn,
                Plan& plan);

}  // namespace runnel
