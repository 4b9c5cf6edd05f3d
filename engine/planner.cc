#include "engine/planner.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace runnel {
namespace {

bool decodes(const Candidate& candidate) { return candidate.want == Want::kNext; }

// Lists a place for every decoding row, and one place for the prompts of each account that has any.
void list_places(std::span<const Candidate> candidates, std::span<const Account> accounts,
                 std::vector<Place>& places) {
  places.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const uint64_t served = decodes(candidate) ? candidate.served : accounts[candidate.account].fed;
    const int index = decodes(candidate) ? static_cast<int>(i) : -1;
    places.push_back({.account = candidate.account, .served = served, .candidate = index});
  }
  const auto key = [](const Place& place) {
    return std::tuple(place.account, place.served, place.candidate);
  };
  std::sort(places.begin(), places.end(),
            [&](const Place& a, const Place& b) { return key(a) < key(b); });
  const auto same = [](const Place& a, const Place& b) {
    return a.account == b.account && a.candidate == -1 && b.candidate == -1;
  };
  places.erase(std::unique(places.begin(), places.end(), same), places.end());
}

// Orders places so that accounts take turns: the first place of each, then the second of each.
void order_by_turns(std::span<const Account> accounts, std::vector<Place>& places) {
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].account == places[i - 1].account) places[i].rank = places[i - 1].rank + 1;
  }
  const auto key = [&](const Place& place) {
    return std::tuple(place.rank, accounts[place.account].served, place.account);
  };
  std::sort(places.begin(), places.end(),
            [&](const Place& a, const Place& b) { return key(a) < key(b); });
}

// If everything fits: gives a row to every decoding candidate, and lets all others be fed.
void take_all(std::span<const Candidate> candidates, Plan& plan) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int index = static_cast<int>(i);
    if (decodes(candidates[i])) {
      plan.shares.push_back({index, 1});
    } else {
      plan.waiting.push_back(index);
    }
  }
}

// Gives a row to the decoding candidates whose turn it is. The other candidates of an account may
// be fed if it is the turn of the account's prompts.
void take_turns(std::span<const Candidate> candidates, std::span<const Account> accounts,
                int64_t room, Plan& plan) {
  list_places(candidates, accounts, plan.places);
  order_by_turns(accounts, plan.places);
  for (const Place& place : std::span(plan.places).first(room)) {
    if (place.candidate >= 0) {
      plan.shares.push_back({place.candidate, 1});
      continue;
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (decodes(candidates[i]) || candidates[i].account != place.account) continue;
      plan.waiting.push_back(static_cast<int>(i));
    }
  }
}

// Orders the rows that may be fed: by account, then within the account.
void order_waiting(std::span<const Candidate> candidates, std::span<const Account> accounts,
                   std::vector<int>& waiting) {
  const auto key = [&](int index) {
    const Candidate& candidate = candidates[index];
    return std::tuple(accounts[candidate.account].fed, candidate.account, candidate.served,
                      candidate.since, index);
  };
  std::sort(waiting.begin(), waiting.end(), [&](int a, int b) { return key(a) < key(b); });
}

// The maximum number of values, up to `most`, after which the candidate may be cut.
int64_t cut(const Candidate& candidate, int64_t most, int chunk) {
  if (most >= candidate.inputs) return candidate.inputs;
  return std::max<int64_t>(0, most - (candidate.position + most) % chunk);
}

// The inputs of a candidate whose even share is `fair`: up to the end of a chunk, at most `most`,
// or none.
int64_t share_of(const Candidate& candidate, int64_t fair, int64_t most, int chunk) {
  const int64_t inputs = cut(candidate, fair, chunk);
  return inputs > 0 ? inputs : cut(candidate, std::min(most, fair + chunk), chunk);
}

// The part of a step that is left for prompts and values to score.
struct Budget {
  int64_t rows = 0;
  int64_t values = 0;

  bool spent() const { return rows <= 0 || values <= 0; }
  void spend(int64_t inputs) {
    --rows;
    values -= inputs;
  }
  Budget part(int64_t parts) const {
    return {std::max<int64_t>(1, rows / parts), std::max<int64_t>(1, values / parts)};
  }
};

// Gives each candidate of one account an even share of `part`, and never more than `left`.
void feed_account(std::span<const Candidate> candidates, std::span<const int> waiting, int chunk,
                  Budget part, Budget& left, std::vector<Share>& shares) {
  auto count = std::ssize(waiting);
  for (const int index : waiting) {
    if (part.spent() || left.spent()) return;
    const int64_t fair = std::max<int64_t>(1, part.values / std::min(count, part.rows));
    const int64_t inputs = share_of(candidates[index], fair, left.values, chunk);
    --count;
    if (inputs == 0) continue;
    shares.push_back({index, static_cast<int>(inputs)});
    part.spend(inputs);
    left.spend(inputs);
  }
}

// The end of the run of candidates in `waiting` that have the same account as the first.
size_t end_of_account(std::span<const Candidate> candidates, std::span<const int> waiting) {
  const int account = candidates[waiting.front()].account;
  const auto other = [&](int index) { return candidates[index].account != account; };
  return static_cast<size_t>(std::find_if(waiting.begin(), waiting.end(), other) - waiting.begin());
}

// Gives the remaining rows to candidates without a row.
void feed_others(std::span<const Candidate> candidates, const ModelLimits& limits, size_t first,
                 Budget& left, Plan& plan) {
  if (plan.shares.size() - first == plan.waiting.size()) return;
  for (const int index : plan.waiting) {
    if (left.spent()) return;
    const bool has_one =
        std::any_of(plan.shares.begin() + static_cast<std::ptrdiff_t>(first), plan.shares.end(),
                    [&](const Share& share) { return share.candidate == index; });
    if (!has_one) {
      feed_account(candidates, {&index, 1}, limits.chunk, {1, 1}, left, plan.shares);
    }
  }
}

// Shares what decoding has left among prompts and values to score.
void share_feeding(std::span<const Candidate> candidates, std::span<const Account> accounts,
                   const ModelLimits& limits, int64_t feed, Plan& plan) {
  const int64_t values = limits.values - plan.decoding;
  Budget left = {limits.rows - plan.decoding, plan.decoding > 0 ? std::min(values, feed) : values};
  if (plan.waiting.empty() || left.spent()) return;
  order_waiting(candidates, accounts, plan.waiting);
  const size_t first = plan.shares.size();
  int64_t accounts_left = 0;
  for (std::span<const int> rest = plan.waiting; !rest.empty(); ++accounts_left) {
    rest = rest.subspan(end_of_account(candidates, rest));
  }
  for (std::span<const int> rest = plan.waiting; !rest.empty() && !left.spent(); --accounts_left) {
    const size_t end = end_of_account(candidates, rest);
    feed_account(candidates, rest.first(end), limits.chunk, left.part(accounts_left), left,
                 plan.shares);
    rest = rest.subspan(end);
  }
  feed_others(candidates, limits, first, left, plan);
  for (size_t i = first; i < plan.shares.size() && left.values > 0; ++i) {
    Share& share = plan.shares[i];
    const int64_t more =
        cut(candidates[share.candidate], share.inputs + left.values, limits.chunk) - share.inputs;
    share.inputs += static_cast<int>(more);
    left.values -= more;
  }
  std::sort(plan.shares.begin() + static_cast<std::ptrdiff_t>(first), plan.shares.end(),
            [&](const Share& a, const Share& b) {
              return std::pair(candidates[a.candidate].want, a.candidate) <
                     std::pair(candidates[b.candidate].want, b.candidate);
            });
}

// One step while anything other than decoding waits; otherwise as many as every stream has room
// for.
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

void plan_decoding(std::span<const Candidate> candidates, std::span<const Account> accounts,
                   const ModelLimits& limits, Plan& plan) {
  plan.shares.clear();
  plan.waiting.clear();
  const auto all = std::count_if(candidates.begin(), candidates.end(), decodes);
  const int64_t places = all + (all < std::ssize(candidates) ? 1 : 0);
  const int64_t room = std::min(limits.rows, limits.values);
  if (places <= room) {
    take_all(candidates, plan);
  } else {
    take_turns(candidates, accounts, room, plan);
  }
  plan.decoding = static_cast<int>(plan.shares.size());
}

void plan_feeding(std::span<const Candidate> candidates, std::span<const Account> accounts,
                  const ModelLimits& limits, int64_t feed, Plan& plan) {
  share_feeding(candidates, accounts, limits, feed, plan);
  plan.steps = plan_steps(candidates, limits, plan);
}

}  // namespace runnel
