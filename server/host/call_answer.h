// The answer to a saved call, with its values and its end, as the store's record has it. A server
// that loads the session gives the answer to its engine, which sends it if the call is retried
// (docs/decisions/storage.md).
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "engine/call_record.h"
#include "models/spec.h"
#include "storage/record.h"

namespace runnel {

// Makes the answer that a store keeps for a call. `call`: the call's record in the engine; null: it
// has none. There is no text if the record is not whole, or the text would be longer than `most`
// bytes.
SavedAnswer answer_of(const CallRecord* call, int64_t most);

// Reads the text of record.answer. The result has no request_id. DATA_LOSS: it is damaged, does not
// lead to the position of the record, or has values that a model of this spec does not have.
Result<std::shared_ptr<CallRecord>> read_answer(const Record& record, const Spec& spec);

}  // namespace runnel
