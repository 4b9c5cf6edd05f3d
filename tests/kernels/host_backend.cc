#include "tests/kernels/host_backend.h"

#include "kernels/cuda/product_library.h"
#include "tests/kernels/host_device.h"

namespace runnel::cuda {

template class DeviceBackend<HostDevice>;

std::unique_ptr<Backend> make_host_backend(const CudaOptions& options, ThreadOrder order,
                                           bool late) {
  auto backend = std::make_unique<DeviceBackend<HostDevice>>(options, order, late);
  if (options.library) backend->use(ProductLibrary::open({kFakeLibrary}).value());
  return backend;
}

}  // namespace runnel::cuda
