// The contracts of operations (backend.h), for all backends. If a shape is wrong, each function
// stops the process and names the operation and the shape that it needs.
//
// The functions look only at shapes. They read nothing that a view points to, because it may be in
// a device's memory.
#pragma once

#include "kernels/backend.h"

namespace runnel {

// The view must be a matrix of this type, with data, and its rows must not overlap. `what` names
// the matrix in the message.
void check_matrix(View view, DType type, const char* what);

void check_pack(HostTensor weight, HostTensor bias);
void check_copy(Span from, Span to);
void check_zero(Span bytes);

void check_embed(Rows rows, View values, const Embedding& embedding, View out);
void check_matmul(View x, const Weight& weight, const End& end, View out);
void check_product(const Product& product);
void check_experts(View x, View scores, const Experts& experts, const ExpertRoom& room, View out);
void check_norm(View x, View residual, const Norm& norm, View out);
void check_gated_norm(View x, const Norm& norm, const NormGate& gate, View out);
void check_shift(View x, View mu, View out);
void check_convolve(View x, const Convolution& convolution, View out);
void check_features(View x, const RandomFeatures& features, View out);
void check_recur(const Recurrence& recurrence, const RecurrenceInputs& inputs, View out);

void check_attend(const Attention& attention, const AttentionInputs& inputs, const Cache& cache,
                  View out);

void check_head(const Head& kind, View head);
void check_score(const Head& kind, View head, View targets, View log_probs);

}  // namespace runnel
