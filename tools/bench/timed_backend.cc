#include "tools/bench/timed_backend.h"

namespace runnel {

const char* step_part_name(StepPart part) {
  static constexpr std::array<const char*, kStepParts> kNames = {
      "embed", "qkv", "recur", "out", "norm", "ffn1", "ffn2", "head", "sample", "other"};
  return kNames[static_cast<size_t>(part)];
}

template <typename F>
void TimedBackend::timed(StepPart part, const F& operation) {
  const auto start = std::chrono::steady_clock::now();
  operation();
  Spent& spent = spent_[static_cast<size_t>(part)];
  spent.time += std::chrono::steady_clock::now() - start;
  ++spent.calls;
}

StepPart TimedBackend::part_of(const Weight& weight) const {
  const int values = spec_.heads * spec_.value_size;
  const auto is = [&](int in, int out) { return weight.in == in && weight.out == out; };
  if (is(spec_.width, 2 * spec_.heads * spec_.query_size + values)) return StepPart::kQkv;
  if (is(spec_.width, spec_.ffn)) return StepPart::kFfn1;
  if (is(spec_.ffn, spec_.width)) return StepPart::kFfn2;
  if (is(values, spec_.width)) return StepPart::kOut;
  return is(spec_.width, spec_.head.width()) ? StepPart::kHead : StepPart::kOther;
}

void TimedBackend::embed(Rows rows, View values, const Control* control, const Embedding& embedding,
                         View out) {
  timed(StepPart::kEmbed, [&] { to_.embed(rows, values, control, embedding, out); });
}

void TimedBackend::matmul(View x, const Weight& weight, Activation activation, View out) {
  timed(part_of(weight), [&] { to_.matmul(x, weight, activation, out); });
}

void TimedBackend::norm(View x, View residual, const Norm& norm, View out) {
  timed(StepPart::kNorm, [&] { to_.norm(x, residual, norm, out); });
}

void TimedBackend::recur(Rows rows, const Recurrence& recurrence, const RecurrenceInputs& inputs,
                         States states, View out) {
  timed(StepPart::kRecur, [&] { to_.recur(rows, recurrence, inputs, states, out); });
}

void TimedBackend::sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                          Emitted* emitted) {
  timed(StepPart::kSample, [&] { to_.sample(rows, outputs, kind, head, control, emitted); });
}

void TimedBackend::score(const Head& kind, View head, View targets, View log_probs) {
  timed(StepPart::kOther, [&] { to_.score(kind, head, targets, log_probs); });
}

}  // namespace runnel
