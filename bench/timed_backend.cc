#include "bench/timed_backend.h"

#include <algorithm>
#include <set>
#include <thread>

namespace runnel {

const char* step_part_name(StepPart part) {
  static constexpr std::array<const char*, kStepParts> kNames = {
      "embed", "qkv",  "features", "recur", "attend", "out",  "norm",
      "ffn1",  "ffn2", "products", "head",  "sample", "other"};
  return kNames[static_cast<size_t>(part)];
}

double TimedBackend::threads() const {
  return static_cast<double>(participants_) / static_cast<double>(std::max<int64_t>(runs_, 1));
}

void TimedBackend::reset() {
  spent_ = {};
  runs_ = participants_ = 0;
}

// Each pass has its own times, so that threads take the lock once per pass and not in every
// operation.
void TimedBackend::run(Rows rows, int64_t work, const Pass& pass) {
  std::set<std::thread::id> threads;
  inner().run(rows, work, [&](Backend& lane, int begin, int end) {
    TimedBackend timed(lane, spec_);
    pass(timed, begin, end);
    std::lock_guard lock(mutex_);
    threads.insert(std::this_thread::get_id());
    for (int i = 0; i < kStepParts; ++i) {
      spent_[i].time += timed.spent_[i].time;
      spent_[i].calls += timed.spent_[i].calls;
    }
  });
  ++runs_;
  participants_ += static_cast<int64_t>(threads.size());
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
  const auto is = [&](int in, int out) { return weight.in == in && weight.out == out; };
  const bool is_head = weight.out == spec_.head.width();
  const auto* const sizes = std::get_if<LinearTransformerSpec>(&spec_.model);
  if (sizes == nullptr) return is_head ? StepPart::kHead : StepPart::kProducts;
  const int values = sizes->heads * sizes->value_size;
  const int gates = sizes->gate ? sizes->heads : 0;
  if (is(sizes->width, 2 * sizes->heads * sizes->query_size + values + gates))
    return StepPart::kQkv;
  if (is(sizes->width, sizes->ffn)) return StepPart::kFfn1;
  if (is(sizes->ffn, sizes->width)) return StepPart::kFfn2;
  if (is(values, sizes->width)) return StepPart::kOut;
  return is_head && weight.in == sizes->width ? StepPart::kHead : StepPart::kOther;
}

void TimedBackend::embed(Rows rows, View values, const Control* control, const Embedding& embedding,
                         View out) {
  timed(StepPart::kEmbed, [&] { inner().embed(rows, values, control, embedding, out); });
}

void TimedBackend::matmuls(std::span<const Product> products) {
  timed(part_of(*products.front().weight), [&] { inner().matmuls(products); });
}

void TimedBackend::norm(View x, View residual, const Norm& norm, View out) {
  timed(StepPart::kNorm, [&] { inner().norm(x, residual, norm, out); });
}

void TimedBackend::experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
                           View out) {
  timed(StepPart::kProducts, [&] { inner().experts(x, scores, experts, room, out); });
}

void TimedBackend::gated_norm(View x, const Norm& norm, const NormGate& gate, View out) {
  timed(StepPart::kNorm, [&] { inner().gated_norm(x, norm, gate, out); });
}

void TimedBackend::shift(Rows rows, View x, View mu, States states, View out) {
  timed(StepPart::kOther, [&] { inner().shift(rows, x, mu, states, out); });
}

void TimedBackend::convolves(Rows rows, std::span<const Convolved> all) {
  timed(StepPart::kOther, [&] { inner().convolves(rows, all); });
}

void TimedBackend::features(View x, const RandomFeatures& features, View out) {
  timed(StepPart::kFeatures, [&] { inner().features(x, features, out); });
}

void TimedBackend::recur(Rows rows, const Control* control, const Recurrence& recurrence,
                         const RecurrenceInputs& inputs, States states, View out) {
  timed(StepPart::kRecur, [&] { inner().recur(rows, control, recurrence, inputs, states, out); });
}

void TimedBackend::attend(Rows rows, const Control* control, const Attention& attention,
                          const AttentionInputs& inputs, const Cache& cache, View out) {
  timed(StepPart::kAttend, [&] { inner().attend(rows, control, attention, inputs, cache, out); });
}

void TimedBackend::sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                          SampledTo to) {
  timed(StepPart::kSample, [&] { inner().sample(rows, outputs, kind, head, control, to); });
}

void TimedBackend::score(const Head& kind, View head, View targets, View log_probs) {
  timed(StepPart::kOther, [&] { inner().score(kind, head, targets, log_probs); });
}

}  // namespace runnel
