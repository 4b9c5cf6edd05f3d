#include "kernels/checks.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/experts.h"
#include "kernels/mixture.h"

namespace runnel {

namespace {

bool is_number(DType type) { return type == DType::kF32 || type == DType::kBF16; }

// No matrix, or an fp32 matrix of this shape.
bool is_none_or_like(View view, View shape) {
  return view.data == nullptr ||
         (view.type == DType::kF32 && view.rows == shape.rows && view.cols == shape.cols &&
          (view.rows <= 1 || view.stride >= view.cols));
}

// The same, or one row that is used for all rows of the shape.
bool is_none_or_row_or_like(View view, View shape) {
  if (view.stride == 0 && view.rows == shape.rows) view.stride = view.cols;
  return is_none_or_like(view, shape);
}

// One row of fp32 with `cols` columns.
bool is_row(View view, int64_t cols) {
  return view.data != nullptr && view.type == DType::kF32 && view.rows == 1 && view.cols == cols;
}

bool is_input(View view, int rows, int64_t cols) {
  return view.type == DType::kF32 && view.rows == rows && view.cols == cols &&
         (rows == 0 || view.data != nullptr);
}

void check_terms(const LinearTerms& terms, const Recurrence& recurrence,
                 const RecurrenceInputs& inputs, View out) {
  check(!is_random(terms.map), "recur: random features are made before");
  check(!terms.gated || (inputs.gate.data != nullptr && inputs.gate.cols == recurrence.heads &&
                         inputs.gate.rows == out.rows),
        "recur: a gate per input and head");
}

void check_terms(const Rwkv7Terms& terms, const Recurrence& recurrence,
                 const RecurrenceInputs& inputs, View out) {
  const int64_t keys = recurrence.keys();
  check(is_row(terms.k_k, keys) && is_row(terms.k_a, keys) && is_row(terms.r_k, keys),
        "recur: k_k, k_a and r_k [1, heads * dk]");
  check(is_input(inputs.decay, out.rows, keys) && is_input(inputs.rate, out.rows, keys),
        "recur: decay and rate [inputs, heads * dk]");
  check(inputs.mix.data == nullptr || (is_input(inputs.mix, out.rows, out.cols) &&
                                       is_input(inputs.first, out.rows, out.cols)),
        "recur: first and mix [inputs, heads * dv]");
  check(is_input(inputs.bonus, out.rows, out.cols), "recur: bonus [inputs, heads * dv]");
}

void check_terms(const Mamba2Terms& terms, const Recurrence& recurrence,
                 const RecurrenceInputs& inputs, View out) {
  const int heads = recurrence.heads;
  check(is_row(terms.dt_rate, heads) && is_row(terms.dt_bias, heads) && is_row(terms.skip, heads),
        "recur: dt_rate, dt_bias and skip [1, heads]");
  check(is_input(inputs.decay, out.rows, heads), "recur: decay [inputs, heads]");
}

void check_terms(const Mamba1Terms& terms, const Recurrence& recurrence,
                 const RecurrenceInputs& inputs, View out) {
  const View rate = terms.dt_rate;
  check(rate.data != nullptr && rate.type == DType::kF32 &&
            rate.rows == recurrence.heads * recurrence.dk && rate.cols == recurrence.dv &&
            rate.stride == rate.cols && is_row(terms.dt_bias, out.cols) &&
            is_row(terms.skip, out.cols),
        "recur: dt_rate [heads * dk, dv], dt_bias and skip [1, heads * dv]");
  check(is_input(inputs.decay, out.rows, out.cols) && is_input(inputs.gate, out.rows, out.cols),
        "recur: decay and gate [inputs, heads * dv]");
}

// `size` columns for each head, or for each of several equally large groups of heads.
bool is_shared(View view, int rows, int heads, int size) {
  return is_input(view, rows, view.cols) && view.cols > 0 && view.cols % size == 0 &&
         heads % (view.cols / size) == 0;
}

void check_terms(const GatedTerms& terms, const Recurrence& recurrence,
                 const RecurrenceInputs& inputs, View out) {
  const int heads = recurrence.heads;
  const int dk = recurrence.dk;
  const int decays = terms.decay_of_heads ? 1 : dk;
  const bool makes_keys = terms.decay == DecayKind::kSigmoid;
  check(is_shared(inputs.q, out.rows, heads, dk) &&
            is_shared(inputs.v, out.rows, heads, recurrence.dv) &&
            (makes_keys ? inputs.k.data == nullptr : is_shared(inputs.k, out.rows, heads, dk)),
        "recur: q, k and v for all heads or for groups of them");
  check(terms.decay == DecayKind::kConstant ? inputs.decay.data == nullptr && !terms.decay_of_heads
                                            : is_shared(inputs.decay, out.rows, heads, decays),
        "recur: decay for all heads or for groups of them");
  check(inputs.rate.data == nullptr ||
            (terms.delta != 0.0F && is_shared(inputs.rate, out.rows, heads, 1)),
        "recur: a rate per input and head");
  check(inputs.turn.data == nullptr || (dk % 2 == 0 && is_input(inputs.turn, out.rows, dk)),
        "recur: turn [inputs, dk]");
  const int64_t channels = int64_t{heads} * dk;
  for (const View constant : {terms.decay_rate, terms.decay_bias, terms.bonus}) {
    check(constant.data == nullptr || is_row(constant, channels),
          "recur: constants [1, heads * dk]");
  }
  check(terms.bonus.data == nullptr || terms.delta == 0.0F, "recur: a bonus or the delta rule");
}

}  // namespace

void check_matrix(View view, DType type, const char* what) {
  check(view.type == type && view.rows >= 0 && view.cols >= 0, what);
  check(view.rows == 0 || view.data != nullptr, what);
  check(view.rows <= 1 || view.stride >= view.cols, what);
}

void check_pack(HostTensor weight, HostTensor bias) {
  check(weight.data != nullptr && weight.rows > 0 && weight.cols > 0,
        "pack: a weight has elements");
  check(is_number(weight.type), "pack: a weight is fp32 or bf16");
  check(weight.cols % format_of(weight.stored).elements == 0, "pack: a row is whole blocks");
  check(bias.data == nullptr ||
            (bias.type == DType::kF32 && bias.rows == 1 && bias.cols == weight.rows),
        "pack: a bias has one element of fp32 per output");
}

void check_copy(Span from, Span to) {
  check(from.bytes == to.bytes && from.bytes >= 0, "copy: the two ranges are of one size");
}

void check_zero(Span bytes) { check(bytes.bytes >= 0, "zero: a range's size is not negative"); }

void check_embed(Rows rows, View values, const Embedding& embedding, View out) {
  check_matrix(out, DType::kF32, "embed: out is a matrix of fp32");
  check(values.type == DType::kI32 && values.cols == out.rows, "embed: one row of out per value");
  check(rows.count > 0 || out.rows == 0, "embed: the rows' inputs are out's");
  check(is_number(embedding.values.type) && is_number(embedding.positions.type),
        "embed: tables are fp32 or bf16");
  check(embedding.values.cols % format_of(embedding.blocks).elements == 0,
        "embed: a vector is whole blocks");
  const int width = embedding.values.cols;
  const int positions = embedding.position == PositionKind::kNone ? 0 : embedding.position_width;
  const bool add = embedding.combine == Combine::kAdd;
  check(out.cols == (add ? width : width + positions) &&
            (!add || positions == 0 || positions == width),
        "embed: out is as wide as values and positions make it");
  check(embedding.position != PositionKind::kTable || embedding.positions.cols == positions,
        "embed: the position table is as wide as said");
}

void check_matmul(View x, const Weight& weight, const End& end, View out) {
  check_matrix(x, DType::kF32, "matmul: x is a matrix of fp32");
  check_matrix(out, DType::kF32, "matmul: out is a matrix of fp32");
  check(x.cols == weight.in && out.cols == weight.out && x.rows == out.rows,
        "matmul: x [n, in], out [n, out]");
  check(is_none_or_row_or_like(end.times, out) && is_none_or_row_or_like(end.plus, out),
        "matmul: what an end multiplies with and adds has out's shape");
  check(end.activation != Activation::kElu, "matmul: elu is of keys alone");
}

void check_product(const Product& product) {
  const auto& [x, weight, end, out, up] = product;
  check_matmul(x, *weight, end, out);
  if (up == nullptr) return;
  check(up->in == weight->in && up->out == weight->out, "matmul: two weights of one shape");
  check(end.times.data == nullptr && end.plus.data == nullptr,
        "matmul: with two weights the end has an activation alone");
}

void check_norm(View x, View residual, const Norm& norm, View out) {
  check_matrix(x, DType::kF32, "norm: x is a matrix of fp32");
  check_matrix(out, DType::kF32, "norm: out is a matrix of fp32");
  check(x.rows == out.rows && x.cols == out.cols && x.cols > 0, "norm: x and out of one shape");
  check(norm.groups > 0 && x.cols % norm.groups == 0, "norm: groups of one size");
  const bool scales = norm.kind != NormKind::kNone;
  const bool shifts = norm.kind == NormKind::kLayer;
  check((scales ? norm.scale.cols == x.cols : norm.scale.data == nullptr) &&
            (shifts ? norm.shift.cols == x.cols : norm.shift.data == nullptr),
        "norm: a scale per column, and for LayerNorm a shift");
  check(residual.data == nullptr ||
            (residual.type == DType::kF32 && residual.rows >= x.rows && residual.cols == x.cols),
        "norm: the residual has x's shape");
}

void check_experts(View x, View scores, const Experts& experts, const ExpertRoom& room, View out) {
  const auto count = std::ssize(experts.up);
  const bool is_gated = !experts.gate.empty();
  check(count >= 1 && count <= kMaxExperts + 1 && std::ssize(experts.down) == count &&
            (!is_gated || std::ssize(experts.gate) == count),
        "experts: 1 to 513 weights of each kind");
  const int64_t used = experts.router.used();
  check(experts.router.chosen >= 1 && experts.router.chosen <= kMaxChosenExperts && used <= count,
        "experts: 1 to 64 of them are chosen");
  int inner = 0;
  for (size_t e = 0; e < experts.up.size(); ++e) {
    const Weight& up = experts.up[e];
    const Weight& gate = is_gated ? experts.gate[e] : up;
    check(up.in == x.cols && gate.in == up.in && gate.out == up.out &&
              experts.down[e].in == up.out && experts.down[e].out == x.cols,
          "experts: gate and up [inner, in], down [in, inner]");
    inner = std::max(inner, up.out);
  }
  check(is_input(x, x.rows, x.cols) && is_input(out, x.rows, x.cols) &&
            is_input(scores, x.rows, count),
        "experts: x and out [inputs, in], scores [inputs, experts]");
  const auto fits = [&](View view, DType type, int64_t cols) {
    return view.type == type && view.rows == x.rows && view.cols == cols && view.stride == cols;
  };
  check(fits(room.used, DType::kI32, used) && fits(room.shares, DType::kF32, used) &&
            fits(room.wide, DType::kF32, used * x.cols) &&
            fits(room.hidden, DType::kF32, used * inner),
        "experts: a room with a row for each input");
}

void check_gated_norm(View x, const Norm& norm, const NormGate& gate, View out) {
  check_norm(x, View{}, norm, out);
  check(gate.by.data != nullptr && is_none_or_like(gate.by, out), "norm: a gate of x's shape");
  check(gate.activation != Activation::kElu, "norm: elu is of keys alone");
  check(is_none_or_like(gate.plus, out) && (!gate.before || gate.plus.data == nullptr),
        "norm: what is added has x's shape, and comes after the norm");
}

void check_shift(View x, View mu, View out) {
  check_matrix(x, DType::kF32, "shift: x is a matrix of fp32");
  check_matrix(mu, DType::kF32, "shift: mu is a matrix of fp32");
  check_matrix(out, DType::kF32, "shift: out is a matrix of fp32");
  check(mu.rows > 0 && mu.cols == x.cols && out.rows == x.rows &&
            out.cols == int64_t{mu.rows} * mu.cols,
        "shift: x [inputs, width], mu [mixes, width], out [inputs, mixes * width]");
}

void check_convolve(View x, const Convolution& convolution, View out) {
  const View bias = convolution.bias;
  check_matrix(x, DType::kF32, "convolve: x is a matrix of fp32");
  check_matrix(convolution.weight, DType::kF32, "convolve: weight is a matrix of fp32");
  check_matrix(out, DType::kF32, "convolve: out is a matrix of fp32");
  check(convolution.taps() > 0 && convolution.weight.cols == x.cols && out.rows == x.rows &&
            out.cols == x.cols,
        "convolve: x and out [inputs, channels], weight [taps, channels]");
  check(bias.data == nullptr || (bias.type == DType::kF32 && bias.cols == x.cols),
        "convolve: a bias per channel");
  check(convolution.activation != Activation::kElu, "convolve: elu is of keys alone");
}

void check_features(View x, const RandomFeatures& features, View out) {
  const View omega = features.omega;
  check(x.type == DType::kF32 && out.type == DType::kF32 && x.rows == out.rows,
        "features: x and out are matrices of fp32, a row per input");
  check(is_random(features.map) && omega.rows > 0 && omega.cols == features.projections() &&
            omega.cols > 0 && omega.stride == omega.cols,
        "features: omega is [dk, projections], without gaps");
  check(x.cols % omega.rows == 0 && out.cols == x.cols / omega.rows * features.size(),
        "features: x [n, blocks * dk], out [n, blocks * size]");
  check(features.sigma.data == nullptr ||
            (features.sigma.rows > 0 && features.sigma.cols == omega.rows),
        "features: sigma is [heads, dk]");
}

void check_recur(const Recurrence& recurrence, const RecurrenceInputs& inputs, View out) {
  const int heads = recurrence.heads;
  const int64_t values = int64_t{heads} * recurrence.dv;
  check_matrix(out, DType::kF32, "recur: out is a matrix of fp32");
  check(heads > 0 && recurrence.dk > 0 && recurrence.dv > 0, "recur: heads have sizes");
  const Rule rule = recurrence.rule();
  const bool groups = rule == Rule::kMamba2 || rule == Rule::kMamba1;
  check(recurrence.key_heads == 0 || (groups && heads % recurrence.key_heads == 0),
        "recur: as many heads to each group of keys");
  check(out.cols == values, "recur: out [inputs, heads * dv]");
  check(rule == Rule::kGated || (inputs.q.cols == recurrence.keys() &&
                                 inputs.k.cols == recurrence.keys() && inputs.v.cols == values),
        "recur: q and k [inputs, heads * dk], v [inputs, heads * dv]");
  check(rule == Rule::kGated ||
            (inputs.q.rows == out.rows && inputs.k.rows == out.rows && inputs.v.rows == out.rows),
        "recur: q, k, v and out have a row per input");
  std::visit([&](const auto& terms) { check_terms(terms, recurrence, inputs, out); },
             recurrence.terms);
}

void check_attend(const Attention& attention, const AttentionInputs& inputs, const Cache& cache,
                  View out) {
  const int heads = attention.heads;
  const int kv_heads = attention.kv_heads;
  check(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && attention.dk > 0 && attention.dv > 0,
        "attend: heads have sizes, and as many queries to each head of keys");
  check(attention.stored == DType::kF32 || attention.stored == DType::kBF16,
        "attend: a cache is fp32 or bf16");
  check_matrix(out, DType::kF32, "attend: out is a matrix of fp32");
  check(out.cols == int64_t{heads} * attention.dv, "attend: out [inputs, heads * dv]");
  check(is_input(inputs.q, out.rows, int64_t{heads} * attention.dk) &&
            is_input(inputs.k, out.rows, int64_t{kv_heads} * attention.dk) &&
            is_input(inputs.v, out.rows, int64_t{kv_heads} * attention.dv),
        "attend: q [inputs, heads * dk], k and v [inputs, kv_heads * their size]");
  const View angles = attention.angles;
  check(angles.data == nullptr ||
            (angles.type == DType::kF32 && angles.rows >= cache.positions && angles.cols % 2 == 0 &&
             angles.cols > 0 && angles.cols <= attention.dk && angles.stride >= angles.cols),
        "attend: angles [positions, an even number up to dk]");
  check(cache.page_bytes >= attention.page_bytes(), "attend: pages hold the layer's part");
}

void check_head(const Head& kind, View head) {
  check_matrix(head, DType::kF32, "head: a matrix of fp32");
  check(head.cols == kind.width() && head.cols > 0, "head: as wide as its kind says");
  check(kind.kind == HeadKind::kCategorical || kind.values == Mixture::kValues,
        "head: a mixture is over 256 values");
}

void check_score(const Head& kind, View head, View targets, View log_probs) {
  check_head(kind, head);
  check(targets.type == DType::kI32 && targets.cols == head.rows && log_probs.type == DType::kF32 &&
            log_probs.cols == head.rows,
        "score: a target and a log-probability per row of the head");
}

}  // namespace runnel
