// The operations on the CPU, as one thread calls them, alone or together with other threads.
#pragma once

#include <string>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/blocks.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/machine.h"
#include "kernels/cpu/sharing.h"

namespace runnel {

inline cpu::Matrix matrix(View view) { return {view.f32(), view.stride}; }

// The operations that a pass calls. Each thread has its own object with scratch memory, on its own
// cache lines, because operations write to it.
class alignas(64) CpuOperations : public Backend {
 public:
  CpuOperations(Isa isa, const cpu::Kernels& kernels)
      : isa_(isa), kernels_(kernels), sharing_(kernels) {}

  // From here to end_sharing(), `threads` threads call the same operations, and share the work of
  // each.
  void begin_sharing(cpu::Phases& phases, int threads) {
    sharing_.begin(phases, threads);
    rounded_ = {};
  }
  void end_sharing() { sharing_.end(); }
  // Reserves the scratch memory for products with a weight.
  void make_room_for(const HostTensor& weight, Precision precision);

  DeviceKind device() const override { return DeviceKind::kCpu; }
  std::string numerics(Precision precision) const override;
  Precision preferred() const override {
    return isa_ >= Isa::kAvx512Bf16 ? Precision::kBf16 : Precision::kFp32;
  }
  int64_t free_memory() const override { return cpu::free_memory(); }
  Status takes(const Recurrence& recurrence) const final;
  Status takes(const Attention& attention) const final;
  Buffer allocate(int64_t bytes, Memory memory) override;
  bool takes_bf16_tables() const override { return true; }
  bool takes_blocks(StoredType type) const override { return has_block_products(type); }
  bool embeds_blocks(StoredType type) const override { return has_block_products(type); }
  Weight pack(HostTensor, HostTensor, Precision) override {
    check(false, "pack: not from within a pass");
    return {};
  }
  void run(Rows, int64_t, const Pass&) override { check(false, "run: not from within a pass"); }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmuls(std::span<const Product> products) override;
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolves(Rows rows, std::span<const Convolved> all) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override;
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  void copy(Span from, Span to) override;
  void zero(Span bytes) override;

 protected:
  const cpu::Kernels& kernels() const { return kernels_; }

 private:
  // Whether threads take blocks of a matmul's rows; otherwise they take its panels.
  bool is_shared_by_rows(int rows) const {
    return cpu::divide_up(rows, kernels_.block_rows) >= 2 * sharing_.threads();
  }
  int panels_of(const Product& product) const;
  void multiply_by_rows(const Product& product);
  void multiply_by_panels(std::span<const Product> products);
  void multiply_panels(const Product& product, int first, int last);
  void multiply(View x, const Weight& weight, const End& end, View out, int first, int last);
  template <typename F>
  void share_experts(View used, std::span<const Weight> weights, int64_t nanoseconds,
                     const F& body);
  void round(View x, Precision precision);
  void convolve_one(Rows rows, const Convolved& one);
  template <typename F>
  void split_columns(Rows rows, int columns, int64_t each, const F& body);
  void sample_row(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                  SampledTo to, int row);
  void grow_scratch(int64_t floats);

  const Isa isa_;
  const cpu::Kernels& kernels_;
  cpu::Sharing sharing_;

  struct Rounded {
    const void* x = nullptr;
    int64_t stride = 0;
    int rows = 0, columns = 0;
    Precision precision = Precision::kFp32;
    uint32_t phase = 0;
    bool operator==(const Rounded&) const = default;
  };
  Rounded rounded_;  // the contents of scratch_, if threads share operations
  Buffer scratch_;   // for categorical heads and rounded inputs
};

}  // namespace runnel
