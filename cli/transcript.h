// Collects the events of one Generate call into its samples, and checks that the events obey the
// contract of the API.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "client/model_choice.h"
#include "runnel/v1/inference.pb.h"

namespace runnel {

struct SampleTranscript {
  int64_t position = 0;  // of values[0]
  std::vector<int32_t> values;
  std::vector<float> log_probs;  // natural log, one per value
  std::vector<v1::TopLogProbs> top;
  std::string text;  // empty if the server does not write values as text
  std::optional<v1::Finished> finished;
};

// Converts a protobuf duration to seconds.
double seconds_of(const google::protobuf::Duration& duration);

// The speed of a call, measured by the server.
struct TranscriptPace {
  double seconds = 0;                   // of the slowest sample
  std::optional<double> first_value;    // seconds to the first sampled value
  std::optional<double> prompt_rate;    // prompt values read per second
  int64_t cached_values = 0;            // prompt values that the prefix cache saved
  std::optional<double> sampling_rate;  // values of all samples per second, after the first value
};

class Transcript {
 public:
  // For a call on `model` that asks for `samples` samples.
  Transcript(const ModelView& model, int samples);

  // Adds the next event. Returns INTERNAL if the event breaks the contract: it comes before
  // Started, its sample was not requested, a value is out of range, or positions have a gap.
  Status add(const v1::GenerateResponse& event);

  // OK if every sample has finished.
  Status complete() const;

  const v1::Started& started() const { return started_; }
  const std::vector<SampleTranscript>& samples() const { return samples_; }
  int64_t values() const { return values_; }  // of all samples

  // The mean over the sampled values. If the model defines the first value of a sequence, that
  // value is not sampled and does not count. None if no value was sampled.
  std::optional<double> bits_per_dim() const;

  // The speed of the call. An optional field has no value if the server did not report its time, or
  // if that time is 0.
  TranscriptPace pace() const;

 private:
  Status add_run(const v1::ValueRun& run);
  // The number of sampled values: all values except a first value that the model defines.
  int64_t drawn(const SampleTranscript& sample) const;

  const int64_t vocabulary_, max_length_;
  const bool has_begin_;
  bool has_started_ = false;
  v1::Started started_;
  std::vector<SampleTranscript> samples_;
  int64_t values_ = 0;
};

}  // namespace runnel
