#include "cli/sampling_flags.h"

#include "base/limits.h"
#include "cli/flags.h"

namespace runnel {

void add_sampling(CLI::App& command, SamplingFlags& flags) {
  command
      .add_option(
          "--seed", flags.seed,
          "The same seed draws the same values (default: the server draws one and tells it)")
      ->check(check_seed);
  command
      .add_option("--temperature", flags.temperature,
                  "Above 1 wilder, below 1 tamer; --greedy for none at all")
      ->check(CLI::Range(0.001, 100.0));
  command.add_option("--top-k", flags.top_k, "Draw from the K most likely values alone")
      ->check(CLI::Range(int64_t{0}, kMaxVocabulary));
  command.add_option("--top-p", flags.top_p, "Draw from the fewest values of this mass alone")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--min-p", flags.min_p,
                  "Draw from values at least this part as likely as the most likely alone")
      ->check(CLI::Range(0.0, 1.0));
  command.add_flag("--greedy", flags.greedy, "Always the most likely value");
}

void fill_sampling(const SamplingFlags& flags, v1::Sampling& sampling) {
  if (flags.seed) sampling.set_seed(*flags.seed);
  if (flags.temperature) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.greedy) sampling.set_greedy(true);
}

}  // namespace runnel
