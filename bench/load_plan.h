// The plan of a load: its calls, and when each is due. Both follow from a seed, and do not depend
// on any answer.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// A distribution of lengths: "64" (always), "16-128" (any of these, equally likely), "16,64,512"
// (one of these, equally likely), "exp:64" (exponential of this mean, at least 1).
class Lengths {
 public:
  // INVALID_ARGUMENT names `flag`, what was expected and what was found.
  static Result<Lengths> parse(std::string_view text, const std::string& flag);

  int64_t draw(std::mt19937_64& random) const;

 private:
  enum class Kind { kOneOf, kRange, kExponential };
  Kind kind_ = Kind::kOneOf;
  // kOneOf: the choices; kRange: first and last; kExponential: the mean.
  std::vector<int64_t> numbers_;
};

// How a client reads the stream of its call.
enum class Manner {
  kReads,    // all of it
  kCancels,  // after some values
  kStalls,   // stops reading after some values, and continues later
};

struct PlannedCall {
  Duration at{};       // since the start of the run: when a user would have made the call
  int64_t prompt = 0;  // values given
  int64_t values = 0;  // values to sample
  Manner manner = Manner::kReads;
  int64_t break_after = 0;  // values after which it cancels or stalls
  uint64_t seed = 0;
};

struct CallMix {
  Lengths prompt, values;
  double cancel_share = 0, stall_share = 0;  // of all calls
  uint64_t seed = 1;
  int64_t max_length = 0;    // of the model's sequences; 0: no limit. Longer calls are shortened
  int64_t least_prompt = 0;  // minimum of a prompt: 1 if the model has no first value of its own
};

class LoadPlan {
 public:
  // Calls arrive at random and independently of each other, on average `rate` a second (a Poisson
  // process). If `rate` is 0, all calls are due at time 0.
  LoadPlan(const CallMix& traffic, double rate);

  // The calls in the order in which they are due.
  PlannedCall next();

 private:
  const CallMix traffic_;
  const double rate_;
  std::mt19937_64 random_;
  double at_ = 0;
};

// `count` random values below `vocabulary`. The same seed gives the same values.
std::vector<int32_t> random_prompt(int64_t count, int64_t vocabulary, uint64_t seed);

}  // namespace runnel
