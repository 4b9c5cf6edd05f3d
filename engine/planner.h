// Chooses the rows of the next batch: a pure function of the candidates and of their accounts.
//
// - Decoding rows come first, with one input each. When there are more than fit, accounts take
// turns,
//   and within an account its rows, which leave one place in the round to its prompts.
// - Prompts and values to score share the rest of the step's budget: accounts evenly, then the
//   prompts of an account. Those that were served longest ago come first, then the oldest; they get
//   the part that others do not need.
// - Where the model takes prompts in chunks, a share ends at the end of a chunk or of its values.
//
// No candidate waits for a fuller batch, and none starves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace runnel {

// A row that could be advanced now. Shares are numbered as they are given, over all plans.
struct Candidate {
  Want want = Want::kNext;
  int account = 0;           // index of the account whose call it belongs to
  uint64_t served = 0;       // the number of its last share, or of the last before it came
  int64_t inputs = 1;        // values that it could consume; 1 where `want` is kNext
  int64_t position = -1;     // of its last value so far; -1: it has none
  TimePoint since{};         // when its prompt or its values to score came
  int64_t room = 1;          // kNext: values that its stream has room for
  bool single_step = false;  // kNext: must be examined after every value (stop sequences)
};

// An account with candidates. As a new candidate does, a new account starts with the number of the
// last share before it came, and so joins the end of the round.
struct Account {
  uint64_t served = 0;  // the number of its last share
  uint64_t fed = 0;     // the number of the last share of its prompts
};

struct Share {
  int candidate = 0;  // its index
  int inputs = 0;     // of it in this step
};

// An entry of the round when not every decoding row fits: a decoding row, or the place of an
// account's prompts.
struct Place {
  int account = 0;
  uint64_t served = 0;
  int candidate = 0;  // -1: the prompts
  int rank = 0;       // among the places of its account
};

struct Plan {
  std::vector<Share> shares;  // in the order of Want: kNext, kScores, kNothing
  int steps = 0;
  int decoding = 0;           // shares that want kNext
  std::vector<int> waiting;   // candidates that do not and may get a row, in their order
  std::vector<Place> places;  // scratch
};

// Fills `plan`, reusing its memory. Where a row decodes, prompts and values to score get at most
// `feed` values together.
void plan_batch(std::span<const Candidate> candidates, std::span<const Account> accounts,
                const ModelLimits& limits, int64_t feed, Plan& plan);

}  // namespace runnel
