// Chooses the arguments and the kernel of a recurrence. The choice depends only on the shape and
// the layout of the states, and never on the batch.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/gated_recur.h"
#include "kernels/cuda/mamba1_recur.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/rule_recur.h"

namespace runnel::cuda {

// Whether states can be read and written 16 bytes at a time.
template <typename Args>
bool has_aligned_states(const Args& args) {
  const auto at =
      reinterpret_cast<uintptr_t>(args.states.base) + static_cast<uintptr_t>(args.states.offset);
  return at % 16 == 0 && args.states.slot_bytes % 16 == 0 && args.dk % 4 == 0 && args.dv % 4 == 0;
}

template <typename Forms, typename Use>
void with_recur_kernel_of(const RecurArgs& args, const Use& use) {
  const bool aligned = has_aligned_states(args);
  if (aligned && Forms::Small::fits(args.dk, args.dv)) {
    use(typename Forms::Small());
  } else if (aligned && Forms::Medium::fits(args.dk, args.dv)) {
    use(typename Forms::Medium());
  } else if (aligned && Forms::Large::fits(args.dk, args.dv)) {
    use(typename Forms::Large());
  } else if (aligned) {
    use(typename Forms::Aligned());
  } else {
    use(typename Forms::Any());
  }
}

// Calls use(Kernel()) for a linear recurrence.
template <typename Use>
void with_recur_kernel(const RecurArgs& args, const Use& use) {
  if (args.form == StateForm::kReplay) {
    with_recur_kernel_of<Recur<StateForm::kReplay>>(args, use);
  } else {
    with_recur_kernel_of<Recur<StateForm::kPlain>>(args, use);
  }
}

// Calls use(Kernel()) for a recurrence of another rule.
template <Rule kRule, typename Use>
void with_rule_kernel(const RuleArgs& args, const Use& use) {
  using Forms = RuleRecur<kRule>;
  if (has_aligned_states(args) && Forms::Medium::fits(args.dk, args.dv)) {
    use(typename Forms::Medium());
  } else if (has_aligned_states(args) && Forms::Large::fits(args.dk, args.dv)) {
    use(typename Forms::Large());
  } else {
    use(typename Forms::Any());
  }
}

// Calls use(Kernel()) for a recurrence of the gated family.
template <bool kCorrected, typename Use>
void with_gated_kernel_of(const GatedArgs& args, const Use& use) {
  using Forms = GatedRecur<kCorrected>;
  if (has_aligned_states(args) && Forms::Medium::fits(args.dk)) {
    use(typename Forms::Medium());
  } else if (has_aligned_states(args) && Forms::Large::fits(args.dk)) {
    use(typename Forms::Large());
  } else {
    use(typename Forms::Any());
  }
}
template <typename Use>
void with_gated_kernel(const GatedArgs& args, const Use& use) {
  args.delta != 0.0F ? with_gated_kernel_of<true>(args, use)
                     : with_gated_kernel_of<false>(args, use);
}

// Calls use(Kernel()) for Mamba-1's recurrence.
template <typename Use>
void with_mamba1_kernel(const Mamba1Args& args, const Use& use) {
  args.dk <= 16 ? use(Mamba1Recur::Small()) : use(Mamba1Recur::Any());
}

inline InputMatrix input_matrix(View view) { return {view.f32(), view.stride}; }

// `rows` must be readable by the device.
template <typename Terms>
RuleArgs rule_args(Rows rows, const Recurrence& recurrence, const Terms& terms,
                   const RecurrenceInputs& inputs, States states, View out) {
  RuleArgs args{};
  args.rows = rows;
  args.inputs = out.rows;
  args.q = input_matrix(inputs.q);
  args.k = input_matrix(inputs.k);
  args.v = input_matrix(inputs.v);
  args.decay = input_matrix(inputs.decay);
  args.heads = recurrence.heads;
  args.key_heads = recurrence.key_heads > 0 ? recurrence.key_heads : recurrence.heads;
  args.dk = recurrence.dk;
  args.dv = recurrence.dv;
  args.states = states;
  args.out = out.f32();
  args.out_stride = out.stride;
  if constexpr (Terms::kRule == Rule::kRwkv7) {
    args.rate = input_matrix(inputs.rate);
    args.first = input_matrix(inputs.first);
    args.mix = input_matrix(inputs.mix);
    args.eps = terms.eps;
    args.k_k = terms.k_k.f32();
    args.k_a = terms.k_a.f32();
    args.r_k = terms.r_k.f32();
    args.bonus = inputs.bonus.f32();
    args.bonus_stride = inputs.bonus.stride;
  } else {
    args.dt_rate = terms.dt_rate.f32();
    args.dt_bias = terms.dt_bias.f32();
    args.skip = terms.skip.f32();
    args.dt_least = terms.dt_least;
    args.dt_most = terms.dt_most;
  }
  return args;
}

inline GatedArgs gated_args(Rows rows, const Recurrence& recurrence, const GatedTerms& terms,
                            const RecurrenceInputs& inputs, States states, View out) {
  const auto shared = [](View view, int size) {
    return HeadInputs{input_matrix(view), view.cols / size, size};
  };
  const int dk = recurrence.dk;
  GatedArgs args{};
  args.rows = rows;
  args.inputs = out.rows;
  args.q = shared(inputs.q, dk);
  args.k = shared(inputs.k, dk);
  args.v = shared(inputs.v, recurrence.dv);
  args.decay = shared(inputs.decay, terms.decay_of_heads ? 1 : dk);
  args.rate = shared(inputs.rate, 1);
  args.turn = input_matrix(inputs.turn);
  args.heads = recurrence.heads;
  args.dk = dk;
  args.dv = recurrence.dv;
  args.parts = (args.dv + kGatedColumns - 1) / kGatedColumns;
  args.kind = terms.decay;
  args.norm = terms.norm;
  args.map = terms.map;
  args.tiled_keys = terms.tiled_keys;
  args.scale = terms.scale;
  args.delta = terms.delta;
  args.decay_least = terms.decay_least;
  args.decay_rate = terms.decay_rate.f32();
  args.decay_bias = terms.decay_bias.f32();
  args.bonus = terms.bonus.f32();
  args.states = states;
  args.out = out.f32();
  args.out_stride = out.stride;
  return args;
}

inline Mamba1Args mamba1_args(Rows rows, const Recurrence& recurrence, const Mamba1Terms& terms,
                              const RecurrenceInputs& inputs, States states, View out) {
  return {.rows = rows,
          .inputs = out.rows,
          .q = input_matrix(inputs.q),
          .k = input_matrix(inputs.k),
          .v = input_matrix(inputs.v),
          .decay = input_matrix(inputs.decay),
          .gate = input_matrix(inputs.gate),
          .width = out.cols,
          .key_heads = recurrence.key_heads > 0 ? recurrence.key_heads : recurrence.heads,
          .heads = recurrence.heads,
          .dk = recurrence.dk,
          .dv = recurrence.dv,
          .rate = terms.dt_rate.f32(),
          .bias = terms.dt_bias.f32(),
          .skip = terms.skip.f32(),
          .states = states,
          .out = out.f32(),
          .out_stride = out.stride};
}

}  // namespace runnel::cuda
