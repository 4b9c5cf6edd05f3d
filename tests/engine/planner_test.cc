#include "engine/planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

namespace runnel {
namespace {

constexpr Candidate kDecode{.want = Want::kNext, .inputs = 1, .room = 100};
Candidate prompt(int64_t inputs) { return {.want = Want::kNothing, .inputs = inputs}; }
Candidate score(int64_t inputs) { return {.want = Want::kScores, .inputs = inputs}; }

// Candidates and accounts that persist from plan to plan.
struct Round {
  explicit Round(std::vector<Candidate> all) : candidates(std::move(all)) {
    for (const Candidate& candidate : candidates) {
      accounts.resize(std::max<size_t>(accounts.size(), candidate.account + 1));
    }
  }

  // Makes the next plan and records who was served. Candidates never run out of work.
  const Plan& next(const ModelLimits& limits) {
    plan_decoding(candidates, accounts, limits, plan);
    plan_feeding(candidates, accounts, limits, feed, plan);
    for (const Share& share : plan.shares) {
      Candidate& candidate = candidates[share.candidate];
      candidate.served = accounts[candidate.account].served = ++shares;
      if (candidate.want != Want::kNext) {
        accounts[candidate.account].fed = shares;
        candidate.position += share.inputs;
      }
      served[share.candidate] += share.inputs;
      ++rows[share.candidate];
    }
    return plan;
  }

  std::vector<Candidate> candidates;
  std::vector<Account> accounts;
  int64_t feed = std::numeric_limits<int64_t>::max();
  uint64_t shares = 0;
  Plan plan;
  std::map<int, int64_t> served;  // inputs
  std::map<int, int> rows;
};

Plan plan(const std::vector<Candidate>& candidates, const ModelLimits& limits) {
  return Round(candidates).next(limits);
}

Candidate of(int account, Candidate candidate) {
  candidate.account = account;
  return candidate;
}

std::map<int, int> inputs_of(const Plan& plan) {
  std::map<int, int> inputs;
  for (const Share& share : plan.shares) inputs[share.candidate] = share.inputs;
  return inputs;
}

TEST(Planner, WithoutCandidatesNothingIsPlanned) {
  EXPECT_TRUE(plan({}, {.rows = 4, .values = 8, .steps = 4}).shares.empty());
}

TEST(Planner, DecodingRowsComeFirstThenChunksWithinTheBudget) {
  const Plan result =
      plan({prompt(100), kDecode, score(3), kDecode}, {.rows = 8, .values = 16, .steps = 4});
  ASSERT_EQ(result.shares.size(), 4U);
  EXPECT_EQ(result.decoding, 2);
  EXPECT_EQ(result.shares[0].candidate, 1);
  EXPECT_EQ(result.shares[1].candidate, 3);
  EXPECT_EQ(result.shares[2].candidate, 2);  // score calls come before prompts
  EXPECT_EQ(result.shares[3].candidate, 0);
  EXPECT_EQ(inputs_of(result), (std::map<int, int>{{0, 11}, {1, 1}, {2, 3}, {3, 1}}));
  EXPECT_EQ(result.steps, 1);  // one step, because a prompt waits
}

TEST(Planner, ALongPromptDoesNotHoldTheOthersBack) {
  const Plan result =
      plan({prompt(1000), prompt(4), prompt(1000)}, {.rows = 8, .values = 30, .steps = 1});
  EXPECT_EQ(inputs_of(result), (std::map<int, int>{{0, 10}, {1, 4}, {2, 16}}));
}

TEST(Planner, AnUnneededShareGoesToTheOldest) {
  const Plan result =
      plan({prompt(1000), prompt(1000), prompt(2)}, {.rows = 8, .values = 30, .steps = 1});
  EXPECT_EQ(inputs_of(result), (std::map<int, int>{{0, 18}, {1, 10}, {2, 2}}));
}

TEST(Planner, PlansManyStepsIfAllRowsDecodeAndEveryStreamHasRoom) {
  Candidate narrow = kDecode;
  EXPECT_EQ(plan({kDecode, kDecode}, {.rows = 8, .values = 8, .steps = 16}).steps, 16);
  narrow.room = 3;
  EXPECT_EQ(plan({kDecode, narrow}, {.rows = 8, .values = 8, .steps = 16}).steps, 3);
  narrow.single_step = true;
  EXPECT_EQ(plan({kDecode, narrow}, {.rows = 8, .values = 8, .steps = 16}).steps, 1);
}

TEST(Planner, DecodingRowsTakeTurnsWhenThereAreMoreThanFit) {
  Round round(std::vector<Candidate>(5, kDecode));
  for (int i = 0; i < 10; ++i) round.next({.rows = 2, .values = 8, .steps = 1});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(round.rows[i], 4) << i;
}

// A caller with many rows does not slow down a caller with one row.
TEST(Planner, CallersTakeTurnsInDecoding) {
  std::vector<Candidate> candidates(500, of(0, kDecode));
  candidates.push_back(of(1, kDecode));
  candidates.push_back(of(2, kDecode));
  Round round(candidates);
  for (int i = 0; i < 500; ++i) round.next({.rows = 4, .values = 8, .steps = 1});
  EXPECT_EQ(round.rows[500], 500);
  EXPECT_EQ(round.rows[501], 500);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(round.rows[i], 2) << i;
}

// With more callers than rows, each caller gets the same share.
TEST(Planner, CallersTakeTurnsWhereThereAreMoreThanRows) {
  std::vector<Candidate> candidates;
  for (int account = 0; account < 6; ++account) {
    for (int i = 0; i <= account; ++i) candidates.push_back(of(account, kDecode));
    if (account % 2 == 0) candidates.push_back(of(account, prompt(1000)));
  }
  Round round(candidates);
  for (int i = 0; i < 60; ++i) round.next({.rows = 2, .values = 8, .steps = 1});
  std::map<int, int> rows;
  for (const auto& [candidate, count] : round.rows) rows[candidates[candidate].account] += count;
  for (int account = 0; account < 6; ++account) EXPECT_EQ(rows[account], 20) << account;
}

TEST(Planner, CallersShareTheBudgetOfPromptsEqually) {
  std::vector<Candidate> candidates(255, of(0, prompt(1'000'000)));
  candidates.push_back(of(1, prompt(1'000'000)));
  for (const int chunk : {1, 64}) {
    Round round(candidates);
    for (int i = 0; i < 10; ++i) {
      round.next({.rows = 256, .values = 512, .steps = 1, .chunk = chunk});
    }
    EXPECT_GE(round.served[255], 10 * 256 - 2 * 64) << chunk;
    EXPECT_LE(round.served[255], 10 * 256 + 2 * 64) << chunk;
  }
}

// Rows and values that one caller does not need go to the others.
TEST(Planner, TheWholeBudgetIsUsedWhileAnyCallerNeedsIt) {
  const Plan result = plan({of(0, prompt(2)), of(1, prompt(3)), of(1, prompt(100)),
                            of(1, prompt(100)), of(1, prompt(100))},
                           {.rows = 5, .values = 50, .steps = 1});
  EXPECT_EQ(result.shares.size(), 5U);
  int total = 0;
  for (const Share& share : result.shares) total += share.inputs;
  EXPECT_EQ(total, 50);
}

// However long the earlier prompts are, a new prompt waits for one round, not for their ends.
TEST(Planner, PromptsOfACallerTakeTurns) {
  for (const ModelLimits& limits :
       {ModelLimits{.rows = 8, .values = 512, .steps = 1},
        ModelLimits{.rows = 256, .values = 512, .steps = 1, .chunk = 64}}) {
    std::vector<Candidate> candidates(256, prompt(1'000'000));
    candidates.push_back(prompt(10));
    candidates.back().since = TimePoint(std::chrono::seconds(1));
    Round round(candidates);
    int plans = 0;
    while (round.served[256] == 0 && plans < 1000) {
      round.next(limits);
      ++plans;
    }
    EXPECT_LE(plans, 257 / 8 + 1);
  }
}

// A share ends at the end of a chunk of 64 values, or has all remaining inputs.
TEST(Planner, APromptIsCutWhereAChunkEnds) {
  const auto shares = [](std::vector<Candidate> candidates, int values) {
    return inputs_of(plan(candidates, {.rows = 8, .values = values, .steps = 1, .chunk = 64}));
  };
  const auto from = [](int64_t position, int64_t inputs) {
    Candidate candidate = prompt(inputs);
    candidate.position = position;
    return candidate;
  };
  EXPECT_EQ(shares({from(9, 1000)}, 200), (std::map<int, int>{{0, 183}}));
  EXPECT_EQ(shares({from(-1, 1000)}, 200), (std::map<int, int>{{0, 193}}));
  EXPECT_EQ(shares({from(9, 190)}, 200), (std::map<int, int>{{0, 190}}));
  // Fair shares would be shorter than a chunk, so the oldest prompts get whole chunks.
  EXPECT_EQ(shares({from(0, 1000), from(0, 1000), from(0, 1000)}, 130),
            (std::map<int, int>{{0, 64}, {1, 64}}));
  EXPECT_EQ(shares({from(0, 1000), from(0, 5), from(0, 1000)}, 130),
            (std::map<int, int>{{0, 64}, {1, 5}}));
}

TEST(Planner, RandomPlansOfChunksMakeProgress) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Candidate> candidates(below(4), kDecode);
    const int decoding = static_cast<int>(candidates.size());
    for (int i = 1 + below(8); i > 0; --i) {
      candidates.push_back(below(2) == 0 ? prompt(1 + below(300)) : score(1 + below(300)));
      candidates.back().position = below(200) - 1;
      candidates.back().account = below(3);
    }
    const int chunk = 1 << below(7);
    const Plan result =
        plan(candidates,
             {.rows = 12, .values = decoding + chunk + below(200), .steps = 1, .chunk = chunk});
    int feeding = 0;
    for (const Share& share : result.shares) {
      const Candidate& candidate = candidates[share.candidate];
      if (candidate.want == Want::kNext) continue;
      ++feeding;
      EXPECT_GE(share.inputs, 1);
      EXPECT_TRUE(share.inputs == candidate.inputs ||
                  (candidate.position + share.inputs) % chunk == 0);
    }
    EXPECT_GE(feeding, 1);
  }
}

TEST(Planner, RandomPlansKeepTheLimitsAndWasteNothing) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Candidate> candidates;
    for (int i = below(12); i > 0; --i) {
      const int kind = below(3);
      candidates.push_back(kind == 0   ? kDecode
                           : kind == 1 ? prompt(1 + below(40))
                                       : score(1 + below(40)));
      candidates.back().account = below(3);
      candidates.back().served = below(3);
    }
    const ModelLimits limits = {
        .rows = 1 + below(8), .values = 1 + below(32), .steps = 1 + below(8)};
    const Plan result = plan(candidates, limits);
    int64_t used = 0;
    int64_t wanted = 0;
    for (const Candidate& c : candidates) wanted += c.inputs;
    std::map<int, int> seen;
    Want last = Want::kNext;
    for (const Share& share : result.shares) {
      const Candidate& candidate = candidates[share.candidate];
      EXPECT_EQ(++seen[share.candidate], 1);
      EXPECT_GE(share.inputs, 1);
      EXPECT_LE(share.inputs, candidate.inputs);
      EXPECT_LE(last, candidate.want);
      last = candidate.want;
      used += share.inputs;
    }
    EXPECT_LE(result.shares.size(), static_cast<size_t>(limits.rows));
    EXPECT_LE(used, limits.values);
    const bool rows_full = result.shares.size() == static_cast<size_t>(limits.rows);
    EXPECT_TRUE(used == std::min<int64_t>(wanted, limits.values) || rows_full);
  }
}

// However many rows decode, a prompt has its turn in the round.
TEST(Planner, DecodingRowsDoNotStarveAPrompt) {
  for (const int rows : {1, 2, 4}) {
    std::vector<Candidate> candidates(6, kDecode);
    candidates.insert(candidates.begin() + 3, {prompt(1000), score(1000)});
    Round round(candidates);
    for (int i = 0; i < 14; ++i) round.next({.rows = rows, .values = 8, .steps = 1});
    for (const int decoding : {0, 1, 2, 5, 6, 7}) EXPECT_NEAR(round.rows[decoding], 2 * rows, 1);
    EXPECT_NEAR(round.rows[3] + round.rows[4], 2 * rows, 1) << rows;
    EXPECT_GE(round.rows[3], 1) << rows;
  }
}

// However many prompts wait, together they take one turn of the round, so the decoding row gets
// every other step.
TEST(Planner, PromptsDoNotStarveADecodingRow) {
  std::vector<Candidate> candidates(20, prompt(1000));
  candidates.insert(candidates.begin(), kDecode);
  Round round(candidates);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(round.next({.rows = 1, .values = 8, .steps = 1}).shares.size(), 1U);
  }
  EXPECT_EQ(round.rows[0], 5);
}

TEST(Planner, TheOldestIsFedFirstWhateverItsKind) {
  std::vector<Candidate> candidates = {prompt(5), prompt(5), score(5)};
  candidates[0].since = TimePoint(std::chrono::seconds(3));
  candidates[1].since = TimePoint(std::chrono::seconds(2));
  candidates[2].since = TimePoint(std::chrono::seconds(1));
  EXPECT_EQ(inputs_of(plan(candidates, {.rows = 1, .values = 8, .steps = 1})),
            (std::map<int, int>{{2, 5}}));
  EXPECT_EQ(inputs_of(plan(candidates, {.rows = 2, .values = 8, .steps = 1})),
            (std::map<int, int>{{1, 4}, {2, 4}}));
}

TEST(Planner, PromptsInAStepWithDecodingRowsKeepToTheirBound) {
  const ModelLimits limits = {.slots = 8, .rows = 8, .values = 64};
  Round round({kDecode, prompt(1000), score(1000), kDecode});
  round.feed = 10;
  EXPECT_EQ(round.next(limits).shares.size(), 4U);
  EXPECT_EQ(round.served[1] + round.served[2], 10);
  round.feed = 1;  // the two prompts take turns
  for (int i = 0; i < 10; ++i) round.next(limits);
  EXPECT_EQ(round.served[1], 10);
  EXPECT_EQ(round.served[2], 10);
  round.feed = 0;
  EXPECT_EQ(round.next(limits).decoding, 2);
  EXPECT_EQ(round.plan.shares.size(), 2U);
}

TEST(Planner, PromptsWithoutDecodingRowsGetTheWholeStep) {
  Round round({prompt(1000), score(1000)});
  round.feed = 1;
  round.next({.slots = 8, .rows = 8, .values = 64});
  EXPECT_EQ(round.served[1] + round.served[0], 64);
}

}  // namespace
}  // namespace runnel
