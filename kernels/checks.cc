#include "kernels/checks.h"

#include "base/check.h"
#include "kernels/mixture.h"

namespace runnel {

namespace {

bool is_number(DType type) { return type == DType::kF32 || type == DType::kBF16; }

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
  const int width = embedding.values.cols;
  const int positions = embedding.position == PositionKind::kNone ? 0 : embedding.position_width;
  const bool add = embedding.combine == Combine::kAdd;
  check(out.cols == (add ? width : width + positions) &&
            (!add || positions == 0 || positions == width),
        "embed: out is as wide as values and positions make it");
  check(embedding.position != PositionKind::kTable || embedding.positions.cols == positions,
        "embed: the position table is as wide as said");
}

void check_matmul(View x, const Weight& weight, View out) {
  check_matrix(x, DType::kF32, "matmul: x is a matrix of fp32");
  check_matrix(out, DType::kF32, "matmul: out is a matrix of fp32");
  check(x.cols == weight.in && out.cols == weight.out && x.rows == out.rows,
        "matmul: x [n, in], out [n, out]");
}

void check_norm(View x, View residual, const Norm& norm, View out) {
  check_matrix(x, DType::kF32, "norm: x is a matrix of fp32");
  check_matrix(out, DType::kF32, "norm: out is a matrix of fp32");
  check(x.rows == out.rows && x.cols == out.cols && x.cols > 0, "norm: x and out of one shape");
  check(norm.scale.cols == x.cols && norm.shift.cols == x.cols,
        "norm: a scale and shift per column");
  check(residual.data == nullptr ||
            (residual.type == DType::kF32 && residual.rows >= x.rows && residual.cols == x.cols),
        "norm: the residual has x's shape");
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
  const int64_t dk = recurrence.dk;
  const int64_t dv = recurrence.dv;
  check_matrix(out, DType::kF32, "recur: out is a matrix of fp32");
  check(heads > 0 && dk > 0 && dv > 0, "recur: heads have sizes");
  check(!is_random(recurrence.map), "recur: random features are made before");
  check(!recurrence.gated || (inputs.gate.data != nullptr && inputs.gate.cols == heads &&
                              inputs.gate.rows == out.rows),
        "recur: a gate per input and head");
  check(inputs.q.cols == heads * dk && inputs.k.cols == heads * dk && inputs.v.cols == heads * dv &&
            out.cols == heads * dv,
        "recur: q and k [inputs, heads * dk], v and out [inputs, heads * dv]");
  check(inputs.q.rows == out.rows && inputs.k.rows == out.rows && inputs.v.rows == out.rows,
        "recur: q, k, v and out have a row per input");
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
