// The launches of a model. At most ModelLimits::launches are in flight at a time. They are
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
  // Set when the launch is collected:
  int64_t decoding = 0, fed = 0;  // the values of decoding rows, and of all other rows
  Duration took{};                // the time of each step
};

class Launches {
 public:
  // All arguments must outlive the object.
  Launches(Model& model, TurnClock& time, EngineMetrics& metrics);

  int on_their_way() const { return on_their_way_; }

  // Adds a row to the next launch, which submit() starts.
  void add(const Subject& subject, Want want, int inputs);
  void submit(int steps);

  // Waits for the oldest launch in flight. The process stops if the device takes longer than a
  // minute and 10 ms for each input of each step. Not OK: the device has failed, and no launch is
  // in flight any more.
  Status collect();
  // The launch that was collected last, and its values. Valid until the next submit().
  const Launch& collected() const { return launches_.back(); }
  std::span<const Emitted> emitted() const { return emitted_; }

 private:
  Status wait_for(const Launch& launch);
  void note_steps(Launch& launch);

  Model& model_;
  TurnClock& time_;
  EngineMetrics& metrics_;
  std::vector<Launch> launches_;  // first the launches in flight, in the order of submit()
  int on_their_way_ = 0;
  std::vector<Row> rows_;  // of the next launch
  std::vector<Emitted> emitted_;
  TimePoint collected_at_{};  // when the last launch was collected
};

}  // namespace runnel
