// Addresses from which a server accepts no connection for some time.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"

namespace runnel {

// An address is kept out for 5 s, then each time for twice as long as before, at most 80 s. It is
// forgotten 10 minutes after it was let in again, or earlier if there are 4096 others. One thread
// uses it.
class KeptOut {
 public:
  // Keeps `peer` (network_of() its address) out from `now`. Does nothing if it is already kept out.
  void add(const std::string& peer, TimePoint now);
  // True while `peer` is kept out.
  bool has(const std::string& peer, TimePoint now) const;

 private:
  struct Term {
    TimePoint until{};
    Duration length{};
  };

  void forget_old(TimePoint now);

  std::map<std::string, Term> terms_;
};

}  // namespace runnel
