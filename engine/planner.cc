#include "engine/planner.h"

#include <algorithm>

namespace runnel {
namespace {

// Decoding rows, from `turn` on, round.
void plan_decoding(std::span<const Candidate> candidates, const PlanLimits& limits, size_t& turn,
                   Plan& plan) {
  const size_t count = candidates.size();
  const int at_most = std::min(limits.rows, limits.values);
  const size_t start = count == 0 ? 0 : turn % count;
  for (size_t i = 0; i < count && plan.decoding < at_most; ++i) {
    const size_t index = (start + i) % count;
    if (candidates[index].want != Want::kNext) continue;
    plan.shares.push_back({static_cast<int>(index), 1});
    ++plan.decoding;
    turn = index + 1;
  }
}

// How many of at most `most` values it may take.
int64_t cut(const Candidate& candidate, int64_t most, int chunk) {
  if (most >= candidate.inputs) return candidate.inputs;
  return std::max<int64_t>(0, most - (candidate.position + most) % chunk);
}

// How many of at most `most` values it may take, where `fair` would be its share: all the way to
// the end of a chunk, or none.
int64_t share_of(const Candidate& candidate, int64_t fair, int64_t most, int chunk) {
  const int64_t inputs = cut(candidate, fair, chunk);
  return inputs > 0 ? inputs : cut(candidate, std::min(most, fair + chunk), chunk);
}

// Prompts and chunks to score: an even share of the budget each, oldest first.
void plan_feeding(std::span<const Candidate> candidates, const PlanLimits& limits, Plan& plan) {
  int64_t waiting = std::count_if(candidates.begin(), candidates.end(),
                                  [](const Candidate& c) { return c.want != Want::kNext; });
  int64_t rows = limits.rows - plan.decoding;
  int64_t values = limits.values - plan.decoding;
  const size_t first = plan.shares.size();
  for (size_t i = 0; i < candidates.size() && rows > 0 && values > 0; ++i) {
    if (candidates[i].want == Want::kNext) continue;
    const int64_t fair = std::max<int64_t>(1, values / std::min(waiting, rows));
    const int64_t inputs = share_of(candidates[i], fair, values, limits.chunk);
    --waiting;
    if (inputs == 0) continue;
    plan.shares.push_back({static_cast<int>(i), static_cast<int>(inputs)});
    values -= inputs;
    --rows;
  }
  for (size_t i = first; i < plan.shares.size() && values > 0; ++i) {
    Share& share = plan.shares[i];
    const int64_t more =
        cut(candidates[share.candidate], share.inputs + values, limits.chunk) - share.inputs;
    share.inputs += static_cast<int>(more);
    values -= more;
  }
  std::stable_sort(plan.shares.begin() + static_cast<std::ptrdiff_t>(first), plan.shares.end(),
                   [&](const Share& a, const Share& b) {
                     return candidates[a.candidate].want < candidates[b.candidate].want;
                   });
}

// One step while anything else than decoding waits; otherwise as many as every stream has room for.
int plan_steps(std::span<const Candidate> candidates, const PlanLimits& limits, const Plan& plan) {
  int64_t steps = limits.steps;
  for (const Candidate& candidate : candidates) {
    if (candidate.want != Want::kNext || candidate.single_step) return 1;
  }
  for (const Share& share : plan.shares) {
    steps = std::min(steps, candidates[share.candidate].room);
  }
  return static_cast<int>(std::max<int64_t>(1, steps));
}

}  // namespace

void plan_batch(std::span<const Candidate> candidates, const PlanLimits& limits, size_t& turn,
                Plan& plan) {
  plan.shares.clear();
  plan.decoding = 0;
  plan_decoding(candidates, limits, turn, plan);
  plan_feeding(candidates, limits, plan);
  plan.steps = plan_steps(candidates, limits, plan);
}

}  // namespace runnel
