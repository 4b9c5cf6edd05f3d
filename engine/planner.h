// Which rows make the next batch: a pure function of what waits.
//
// Decoding rows come first, one input each; when there are more than fit, the turn goes round, and
// where it comes to prompts, one row is left to them. What is left of the step's budget is shared
// by prompts and chunks to score: evenly, and what one does not need goes to the oldest. Nothing
// waits for a fuller batch, and nothing for ever. Where the model takes prompts in chunks, a share
// ends where a chunk does, or with its values.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace runnel {

// Something that could be advanced now.
struct Candidate {
  Want want = Want::kNext;
  int64_t inputs = 1;        // values that it could consume; 1 where `want` is kNext
  int64_t position = -1;     // of its last value so far; -1: it has none
  TimePoint since{};         // when a prompt or chunk came
  int64_t room = 1;          // kNext: values its stream has room for
  bool single_step = false;  // kNext: must be looked at after every value (stop sequences)
};

struct PlanLimits {
  int rows = 0;
  int values = 0;  // inputs in one step
  int steps = 0;   // in one launch
  int chunk = 1;   // positions that are multiples of it are where a prompt may be cut
};

struct Share {
  int candidate = 0;  // its index
  int inputs = 0;     // of it in this step
};

struct Plan {
  std::vector<Share> shares;  // in the order of Want: kNext, kScores, kNothing
  int steps = 0;
  int decoding = 0;          // how many of the shares want kNext
  std::vector<int> waiting;  // prompts and chunks, oldest first
};

// Fills `plan` (its memory is reused). `turn` is where the round starts; it is moved on to whose
// turn is next.
void plan_batch(std::span<const Candidate> candidates, const PlanLimits& limits, size_t& turn,
                Plan& plan);

}  // namespace runnel
