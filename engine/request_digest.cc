#include "engine/request_digest.h"

#include <concepts>
#include <cstddef>
#include <span>

namespace runnel {
namespace {

template <typename T>
concept Number = std::integral<T> || std::floating_point<T>;

// Adds fields one after another. A field of variable length is preceded by its length, so that
// different fields never give the same bytes.
class Digester {
 public:
  template <Number T>
  void add(T value) {
    add_span<T>({&value, 1});
  }
  void add(Duration value) { add(value.count()); }
  void add(const std::string& text) {
    add(text.size());
    add_span<char>(text);
  }
  template <typename T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  void add(const std::vector<int32_t>& values) {
    add(values.size());
    add_span<int32_t>(values);
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  void add(const Sampling& sampling) {
    const auto& [temperature, top_k, top_p, min_p, greedy] = sampling;
    add_all(temperature, top_k, top_p, min_p, greedy);
  }
  void add(const std::shared_ptr<const Penalties>& given) {
    add(given != nullptr);
    if (given == nullptr) return;
    const auto& [repetition, frequency, presence, logit_bias] = *given;
    add_all(repetition, frequency, presence, logit_bias);
  }
  void add(const NextTurn& turn) {
    const auto& [at_start, later, values, end_of_turn, end, stop_text, after_stop] = turn;
    add_all(at_start.message(), later.message(), values, end_of_turn, end, stop_text, after_stop);
  }
  void add(const LogitBias& term) { add_all(term.value, term.bias); }
  void add(const Delivery& delivery) {
    const auto& [max_values, max_delay] = delivery;
    add_all(max_values, max_delay);
  }
  template <typename... Fields>
  void add_all(const Fields&... fields) {
    (add(fields), ...);
  }

  RequestDigest finish() { return hash_.finish(); }

 private:
  template <typename T>
  void add_span(std::span<const T> values) {
    hash_.add(std::as_bytes(values));
  }

  Sha256 hash_;
};

}  // namespace

RequestDigest digest_of(const GenerateRequest& request) {
  // Names every field, so that a new one does not compile before it is added here.
  const auto& [caller, model, session, state, prompt, turn, begin, shared, samples, max_values,
               max_time, max_queue_time, seed, sampling, penalties, stop, stop_text, end_of_turn,
               ignore_eos, tokenizer, top_log_probs, keep, expected_position, made, request_id,
               delivery, stored, came, held_bytes] = request;
  static_cast<void>(model);  // the model may be named by an alias
  static_cast<void>(tokenizer);
  static_cast<void>(max_queue_time);  // does not change the answer
  static_cast<void>(came);            // is not part of the request's meaning
  static_cast<void>(stored);          // likewise
  static_cast<void>(held_bytes);      // follows from the rest
  static_cast<void>(shared);          // does not change any value
  static_cast<void>(made);            // the server draws it
  Digester digester;
  digester.add_all(caller.name, session, state, prompt, turn, begin, samples, max_values, max_time,
                   seed, sampling, penalties, stop, stop_text, end_of_turn, ignore_eos,
                   top_log_probs, keep, expected_position, request_id, delivery);
  return digester.finish();
}

}  // namespace runnel
