#include "engine/planner.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

// Picks decoding rows round-robin from `turn`, reserving one row for prompts when the round reaches
// the first of them.
void plan_decoding(std::span<const Candidate> candidates, const ModelLimits& limits, size_t& turn,
                   Plan& plan) {
  const size_t count = candidates.size();
  const size_t start = count == 0 ? 0 : turn % count;
  bool feeds = false;
  int left = std::min(limits.rows, limits.values);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (start + i) % count;
    const bool decodes = candidates[index].want == Want::kNext;
    if (decodes || !feeds) {
      if (left == 0) return;
      --left;
    }
    if (decodes) {
      plan.shares.push_back({static_cast<int>(index), 1});
      ++plan.decoding;
    } else {
      feeds = true;
    }
    turn = index + 1;
  }
}

// Lists prompts and values to score, oldest first.
void find_waiting(std::span<const Candidate> candidates, Plan& plan) {
  plan.waiting.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].want != Want::kNext) plan.waiting.push_back(static_cast<int>(i));
  }
  std::sort(plan.waiting.begin(), plan.waiting.end(), [&](int a, int b) {
    return std::pair(candidates[a].since, a) < std::pair(candidates[b].since, b);
  });
}

// The most values, up to `most`, after which the candidate may be cut.
int64_t cut(const Candidate& candidate, int64_t most, int chunk) {
  if (most >= candidate.inputs) return candidate.inputs;
  return std::max<int64_t>(0, most - (candidate.position + most) % chunk);
}

// The inputs of a candidate whose even share is `fair`, at most `most`: up to the end of a chunk,
// or none.
int64_t share_of(const Candidate& candidate, int64_t fair, int64_t most, int chunk) {
  const int64_t inputs = cut(candidate, fair, chunk);
  return inputs > 0 ? inputs : cut(candidate, std::min(most, fair + chunk), chunk);
}

// Gives prompts and values to score an even share of the budget each, oldest first.
void plan_feeding(std::span<const Candidate> candidates, const ModelLimits& limits, Plan& plan) {
  find_waiting(candidates, plan);
  int64_t waiting = std::ssize(plan.waiting);
  int64_t rows = limits.rows - plan.decoding;
  int64_t values = limits.values - plan.decoding;
  const size_t first = plan.shares.size();
  for (const int index : plan.waiting) {
    if (rows == 0 || values == 0) break;
    const int64_t fair = std::max<int64_t>(1, values / std::min(waiting, rows));
    const int64_t inputs = share_of(candidates[index], fair, values, limits.chunk);
    --waiting;
    if (inputs == 0) continue;
    plan.shares.push_back({index, static_cast<int>(inputs)});
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
  std::sort(plan.shares.begin() + static_cast<std::ptrdiff_t>(first), plan.shares.end(),
            [&](const Share& a, const Share& b) {
              return std::pair(candidates[a.candidate].want, a.candidate) <
                     std::pair(candidates[b.candidate].want, b.candidate);
            });
}

// One step while anything but decoding waits; otherwise as many as every stream has room for.
int plan_steps(std::span<const Candidate> candidates, const ModelLimits& limits, const Plan& plan) {
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

void plan_batch(std::span<const Candidate> candidates, const ModelLimits& limits, size_t& turn,
                Plan& plan) {
  plan.shares.clear();
  plan.decoding = 0;
  plan_decoding(candidates, limits, turn, plan);
  plan_feeding(candidates, limits, plan);
  plan.steps = plan_steps(candidates, limits, plan);
}

}  // namespace runnel
