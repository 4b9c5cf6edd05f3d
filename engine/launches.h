// The launches of a model: at most ModelLimits::launches are on their way at a time, and they are
// collected in the order in which they were submitted. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/metrics.h"
#include "engine/subject.h"
#include "engine/turn_clock.h"
#include "models/model.h"

namespace runnel {

struct Launch {
  struct Part {
    Subject subject;
    Want want = Want::kNext;
    int inputs = 0;
  };
  Ticket ticket = 0;
  TimePoint submitted{};
  int steps = 0;
  std::vector<Part> parts;  // by row
  // Once it is collected:
  int64_t decoding = 0, fed = 0;  // values of rows that decode, and of all others
  Duration took{};                // each step
};

class Launches {
 public:
  // All three outlive it.
  Launches(Model& model, TurnClock& time, EngineMetrics& metrics);

  int on_their_way() const { return on_their_way_; }

  // Adds a row to the next launch, which submit() sends off.
  void add(const Subject& subject, Want want, int inputs);
  void submit(int steps);

  // Waits for the first launch on its way; a device that takes longer than a minute stops the
  // process. Not OK: the device has failed, and nothing is on its way any more.
  Status collect();
  // The launch that was collected last and its values, until the next submit().
  const Launch& collected() const { return launches_.back(); }
  std::span<const Emitted> emitted() const { return emitted_; }

 private:
  Status wait_for(Ticket ticket);
  void note_steps(Launch& launch);

  Model& model_;
  TurnClock& time_;
  EngineMetrics& metrics_;
  std::vector<Launch> launches_;  // those on their way first, in the order of submits
  int on_their_way_ = 0;
  std::vector<Row> rows_;  // of the next launch
  std::vector<Emitted> emitted_;
  TimePoint collected_at_{};  // when the last launch was
};

}  // namespace runnel
