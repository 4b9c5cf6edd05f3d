// The outcome of one Generate call, assembled from its events and checked against the contract.
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
  std::string text;  // if the server writes values as text
  std::optional<v1::Finished> finished;
};

// A duration of the wire in seconds.
double seconds_of(const google::protobuf::Duration& duration);

// The speed of a call, by the server's clock.
struct TranscriptPace {
  double seconds = 0;                 // of the slowest sample
  std::optional<double> first_value;  // seconds to the first sampled value
  std::optional<double> prompt_rate;  // prompt values read per second
  int64_t cached_values = 0;          // prompt values that were not read, because a state was kept
  std::optional<double> sampling_rate;  // values of all samples per second, after the first value
};

class Transcript {
 public:
  // For a call of `model` with `samples` samples.
  Transcript(const ModelView& model, int samples);

  // Adds the next event. INTERNAL if the event breaks the contract: it comes before Started, its
  // sample was not requested, a value is out of range, or positions have a gap.
  Status add(const v1::GenerateResponse& event);

  // OK if every sample has finished.
  Status complete() const;

  const v1::Started& started() const { return started_; }
  const std::vector<SampleTranscript>& samples() const { return samples_; }
  int64_t values() const { return values_; }  // of all samples

  // The mean over the values that were drawn. A first value that the model gives is not drawn, and
  // does not count. None if no value was drawn.
  std::optional<double> bits_per_dim() const;

  // The speed of the call. A field is none if the server did not report it, or if the measured time
  // is 0.
  TranscriptPace pace() const;

 private:
  Status add_run(const v1::ValueRun& run);
  // The number of values that were drawn: all except a first value that the model gave.
  int64_t drawn(const SampleTranscript& sample) const;

  const int64_t vocabulary_, max_length_;
  const bool has_begin_;
  bool has_started_ = false;
  v1::Started started_;
  std::vector<SampleTranscript> samples_;
  int64_t values_ = 0;
};

}  // namespace runnel
