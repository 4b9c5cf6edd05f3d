// Fields that change the result on other servers and are not supported here.
#pragma once

#include "server/http/request_fields.h"

namespace runnel {

// Accepts each of these fields if its value changes nothing, and refuses any other value.
void read_neutral(RequestFields& fields);

}  // namespace runnel
