// A backend whose operations take host memory, and which runs them on a device's backend. It copies
// all memory that an operation uses to the device, with the gaps between the rows of a matrix, runs
// the operation, waits and copies everything back. So one test body serves every backend.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/experts.h"
#include "kernels/forwarding_backend.h"

namespace runnel {

class MirrorBackend final : public ForwardingBackend {
 public:
  explicit MirrorBackend(std::unique_ptr<Backend> on)
      : ForwardingBackend(*on), on_(std::move(on)) {}

  void run(Rows rows, int64_t, const Pass& pass) override { pass(*this, 0, rows.count); }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override {
    Embedding there = embedding;
    there.values = mirror(embedding.values);
    there.positions = mirror(embedding.positions);
    const Rows at = mirror(rows);
    const View inputs = mirror(values);
    const Control* controls = mirror(control, slots(rows));
    on_->embed(at, inputs, controls, there, mirror(out));
    bring_back();
  }
  void matmuls(std::span<const Product> products) override {
    std::vector<Product> there;
    for (const Product& one : products) there.push_back(mirror(one));
    on_->matmuls(there);
    bring_back();
  }
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override {
    Experts there = experts;
    there.router.bias = mirror(experts.router.bias, experts.up.size());
    const View from = mirror(x);
    const View rated = mirror(scores);
    const ExpertRoom apart = {mirror(room.used), mirror(room.shares), mirror(room.wide),
                              mirror(room.hidden)};
    on_->experts(from, rated, there, apart, mirror(out));
    bring_back();
  }
  void norm(View x, View residual, const Norm& norm, View out) override {
    const View from = mirror(x);
    const View more = same(residual, x) ? from : mirror(residual);
    const View to = same(out, x) ? from : same(out, residual) ? more : mirror(out);
    on_->norm(from, more, mirror(norm), to);
    bring_back();
  }
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override {
    const View from = mirror(x);
    NormGate there = gate;
    there.by = mirror(gate.by);
    there.plus = mirror(gate.plus);
    on_->gated_norm(from, mirror(norm), there, same(out, x) ? from : mirror(out));
    bring_back();
  }
  void shift(Rows rows, View x, View mu, States states, View out) override {
    const Rows at = mirror(rows);
    const View from = mirror(x);
    const States there = mirror(states, rows, int64_t{x.cols} * 4);
    on_->shift(at, from, mirror(mu), there, same(out, x) ? from : mirror(out));
    bring_back();
  }
  void convolves(Rows rows, std::span<const Convolved> all) override {
    const Rows at = mirror(rows);
    std::vector<Convolution> filters(all.size());
    std::vector<Convolved> there;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& [x, convolution, states, out] = all[i];
      const View from = mirror(x);
      filters[i] = *convolution;
      filters[i].weight = mirror(convolution->weight);
      filters[i].bias = mirror(convolution->bias);
      there.push_back({from, &filters[i], mirror(states, rows, convolution->state_bytes()),
                       same(out, x) ? from : mirror(out)});
    }
    on_->convolves(at, there);
    bring_back();
  }
  void features(View x, const RandomFeatures& features, View out) override {
    RandomFeatures there = features;
    there.omega = mirror(features.omega);
    there.sigma = mirror(features.sigma);
    const View from = mirror(x);
    on_->features(from, there, mirror(out));
    bring_back();
  }
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override {
    const Rows at = mirror(rows);
    const States there = mirror(states, rows, on_->state_bytes(recurrence));
    Recurrence rule = recurrence;
    if (auto* const rwkv7 = std::get_if<Rwkv7Terms>(&rule.terms)) {
      for (View* view : {&rwkv7->k_k, &rwkv7->k_a, &rwkv7->r_k}) *view = mirror(*view);
    } else if (auto* const mamba2 = std::get_if<Mamba2Terms>(&rule.terms)) {
      for (View* view : {&mamba2->dt_rate, &mamba2->dt_bias, &mamba2->skip}) *view = mirror(*view);
    } else if (auto* const mamba1 = std::get_if<Mamba1Terms>(&rule.terms)) {
      for (View* view : {&mamba1->dt_rate, &mamba1->dt_bias, &mamba1->skip}) *view = mirror(*view);
    } else if (auto* const gated = std::get_if<GatedTerms>(&rule.terms)) {
      for (View* view : {&gated->decay_rate, &gated->decay_bias, &gated->bonus}) {
        *view = mirror(*view);
      }
    }
    RecurrenceInputs given = inputs;
    for (View* view : {&given.q, &given.k, &given.v, &given.gate, &given.decay, &given.rate,
                       &given.turn, &given.first, &given.mix, &given.bonus}) {
      *view = mirror(*view);
    }
    const Control* controls = mirror(control, slots(rows));
    on_->recur(at, controls, rule, given, there, mirror(out));
    bring_back();
  }
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override {
    const Rows at = mirror(rows);
    Attention there = attention;
    there.angles = mirror(attention.angles);
    const int64_t pages = (cache.positions + kPagePositions - 1) / kPagePositions;
    Cache pages_there = cache;
    pages_there.first =
        mirror(cache.first, rows, (pages - 1) * cache.page_bytes + attention.page_bytes());
    const AttentionInputs given = {mirror(inputs.q), mirror(inputs.k), mirror(inputs.v)};
    const Control* controls = mirror(control, slots(rows));
    on_->attend(at, controls, there, given, pages_there, mirror(out));
    bring_back();
  }
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override {
    const Rows at = mirror(rows);
    const Outputs wanted = {mirror(outputs.head_row, rows.count),
                            mirror(outputs.pending, rows.count), mirror(outputs.recent, rows)};
    const View from = mirror(head);
    Control* controls = mirror(control, slots(rows));
    on_->sample(
        at, wanted, kind, from, controls,
        {mirror(to.rows, rows.count), mirror(to.top, int64_t{rows.count} * kMaxTopLogProbs)});
    bring_back();
  }
  void score(const Head& kind, View head, View targets, View log_probs) override {
    const View from = mirror(head);
    const View of = mirror(targets);
    on_->score(kind, from, of, mirror(log_probs));
    bring_back();
  }
  // Fused kernels would read host memory, and here every operation waits for the device.
  FusedSteps* fused() override { return nullptr; }
  int launches() const override { return 1; }

 private:
  struct Mirrored {
    std::byte* here;
    Buffer there;
  };

  // Copies `count` elements at `here` to the device. They are copied back after the operation.
  template <typename T>
  T* mirror(T* here, int64_t count) {
    if (count <= 0) return nullptr;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    auto* data = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(here));
    mirrored_.push_back({data, on_->allocate(bytes, Memory::kDevice)});
    on_->copy({data, bytes}, mirrored_.back().there.span());
    return reinterpret_cast<T*>(mirrored_.back().there.data());
  }
  View mirror(View here) {
    View there = here;
    if (here.data == nullptr || here.rows == 0) return there;
    const int64_t elements = int64_t{here.rows - 1} * here.stride + here.cols;
    there.data = mirror(static_cast<std::byte*>(here.data), elements * element_bytes(here.type));
    return there;
  }
  Product mirror(const Product& here) {
    const View x = mirror(here.x);
    const View out = mirror(here.out);
    const auto there = [&](View view) { return same(view, here.out) ? out : mirror(view); };
    return {x,
            here.weight,
            {here.end.activation, there(here.end.times), there(here.end.plus)},
            out,
            here.up};
  }
  Rows mirror(Rows here) {
    const int32_t* first =
        mirror(here.first, here.count + 1);  // unchanged: inputs count from first[0]
    return {mirror(here.slot, here.count), first, here.count};
  }
  Norm mirror(const Norm& here) {
    Norm there = here;
    there.scale = mirror(here.scale);
    there.shift = mirror(here.shift);
    return there;
  }
  // The states of all slots that the rows name, from their base to the end of the last slot's part,
  // which has `part_bytes` bytes.
  States mirror(States here, Rows rows, int64_t part_bytes) {
    const int64_t bytes = (slots(rows) - 1) * here.slot_bytes + here.offset + part_bytes;
    States there = here;
    there.base = mirror(here.base, slots(rows) > 0 ? bytes : 0);
    return there;
  }
  Recent mirror(const Recent& here, Rows rows) {
    Recent there = here;
    if (here.room > 0) there.states = mirror(here.states, rows, int64_t{here.room} * 4);
    if (here.inputs != nullptr) there.inputs = mirror(here.inputs, rows.first[rows.count]);
    if (here.penalties == nullptr) return there;
    int64_t biases = 0;
    for (int row = 0; row < rows.count; ++row) {
      const RowPenalties& of = here.penalties[row];
      biases = std::max<int64_t>(biases, of.first_bias + of.biases);
    }
    there.penalties = mirror(here.penalties, rows.count);
    there.biases = mirror(here.biases, biases);
    return there;
  }
  // One more than the largest slot that the rows name.
  static int64_t slots(Rows rows) {
    int64_t count = 0;
    for (int row = 0; row < rows.count; ++row) {
      count = rows.slot[row] >= count ? rows.slot[row] + 1 : count;
    }
    return count;
  }
  static bool same(View a, View b) { return a.data != nullptr && a.data == b.data; }

  void bring_back() {
    while (true) {
      const Result<bool> done = on_->done(0);
      if (!done.ok()) check(false, done.status().message().c_str());
      if (*done) break;
      std::this_thread::yield();
    }
    for (Mirrored& at : mirrored_) on_->copy(at.there.span(), {at.here, at.there.bytes()});
    mirrored_.clear();
  }

  std::unique_ptr<Backend> on_;
  std::vector<Mirrored> mirrored_;
};

}  // namespace runnel
