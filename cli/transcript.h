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
  std::string text;  // where the server writes values as text
  std::optional<v1::Finished> finished;
};

// A duration of the wire in seconds.
double seconds_of(const google::protobuf::Duration& duration);

// How fast a call was, by the server's clock.
struct TranscriptPace {
  double seconds = 0;                   // of the sample that took longest
  std::optional<double> first_value;    // seconds to the first value that was sampled
  std::optional<double> prompt_rate;    // values of the prompt that were read a second
  int64_t cached_values = 0;            // of the prompt, which were not
  std::optional<double> sampling_rate;  // values of all samples a second, after the first
};

class Transcript {
 public:
  // For a call with so many samples of `model`.
  Transcript(const ModelView& model, int samples);

  // Takes the next event. INTERNAL when it breaks the contract: no Started first, a sample that was
  // not asked for, values out of range, positions with a hole.
  Status add(const v1::GenerateResponse& event);

  // OK when every sample has finished.
  Status complete() const;

  const v1::Started& started() const { return started_; }
  const std::vector<SampleTranscript>& samples() const { return samples_; }
  int64_t values() const { return values_; }  // of all samples

  // Mean over the values that were drawn: a first value that the model is given costs nothing and
  // does not count. Nothing was drawn: none.
  std::optional<double> bits_per_dim() const;

  // None of what the server did not tell, or what took no time that it measured.
  TranscriptPace pace() const;

 private:
  Status add_run(const v1::ValueRun& run);
  // Values that were drawn: all but a first value that the model gave.
  int64_t drawn(const SampleTranscript& sample) const;

  const int64_t vocabulary_, max_length_;
  const bool has_begin_;
  bool has_started_ = false;
  v1::Started started_;
  std::vector<SampleTranscript> samples_;
  int64_t values_ = 0;
};

}  // namespace runnel
