// Chooses the rows of the next batch. The plan depends only on the candidates and their accounts.
//
// - Decoding rows come first, with one input each. If not all of them fit, accounts take turns. The
//   rows of an account take turns, too, and one place in their round is for the account's prompts.
// - Prompts and values to score share the rest of the step's budget, evenly among accounts and then
//   among the prompts of an account. The prompt that was served longest ago comes first, then the
//   oldest. The first ones also get the budget that is left over.
// - If the model reads prompts in chunks, a share ends at the end of a chunk or of its values.
//
// No candidate waits for a fuller batch, and none starves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace runnel {

// A row that could be advanced now. Each share gets a number. The numbers increase over all plans.
struct Candidate {
  Want want = Want::kNext;
  int account = 0;           // index of the account whose call it belongs to
  uint64_t served = 0;       // the number of its last share, or of the last one before it arrived
  int64_t inputs = 1;        // the values that it could consume; 1 for kNext
  int64_t position = -1;     // the position of its last value; -1: it has no value
  TimePoint since{};         // when its prompt or its values to score arrived
  int64_t room = 1;          // kNext: the room of its stream, in values
  bool single_step = false;  // kNext: it must be examined after every value (stop sequences)
};

// An account with candidates. A new account, like a new candidate, starts with the number of the
// last share that was given before. So it joins the end of the round.
struct Account {
  uint64_t served = 0;  // the number of its last share
  uint64_t fed = 0;     // the number of the last share of its prompts
};

struct Share {
  int candidate = 0;  // the index of the candidate
  int inputs = 0;     // the values that it consumes in this step
};

// An entry of the round that is made if not every decoding row fits: a decoding row, or the place
// for an account's prompts.
struct Place {
  int account = 0;
  uint64_t served = 0;
  int candidate = 0;  // -1: the prompts
  int rank = 0;       // its index among the places of its account
};

struct Plan {
  std::vector<Share> shares;  // in the order of Want: kNext, kScores, kNothing
  int steps = 0;
  int decoding = 0;           // shares that want kNext
  std::vector<int> waiting;   // other candidates that may get a row, in their order
  std::vector<Place> places;  // scratch
};

// Begins `plan` with the decoding rows, and reuses its memory. plan_feeding() must follow.
void plan_decoding(std::span<const Candidate> candidates, std::span<const Account> accounts,
                   const ModelLimits& limits, Plan& plan);
// Completes the plan. If a row decodes, all prompts and values to score together get at most `feed`
// values.
void plan_feeding(std::span<const Candidate> candidates, std::span<const Account> accounts,
                  const ModelLimits& limits, int64_t feed, Plan& plan);

}  // namespace runnel
