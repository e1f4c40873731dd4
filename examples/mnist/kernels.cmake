# The matrix products of a training step: functions that CMake emits, each with the kernels that are
# predicted to be the fastest for these shapes on MNIST_GPUS. Other sizes take one of them, too.
set(batch 128)
set(forward)
set(logits)
set(input_gradient)
set(weight_update)
foreach(hidden IN ITEMS 32 64 128 256 512 1024 2048)
  list(APPEND forward ${batch}x${hidden}x784 ${batch}x${hidden}x${hidden})
  # The ten classes are 16 elements apart in memory, see src/shape.h.
  list(APPEND logits ${batch}x16x${hidden})
  list(APPEND input_gradient ${batch}x${hidden}x16 ${batch}x${hidden}x${hidden})
  list(APPEND weight_update 784x${hidden}x${batch} ${hidden}x${hidden}x${batch} ${hidden}x16x${batch})
endforeach()
set(where_active "activation[row, col] > 0 ? x : 0")

gen_add_bundle(mnist NAME mnist_forward AUTO SHAPES ${forward} GPUS ${MNIST_GPUS}
               DTYPE f16 EPILOGUE linear_bias_relu)
gen_add_bundle(mnist NAME mnist_logits AUTO SHAPES ${logits} GPUS ${MNIST_GPUS}
               DTYPE f16_f32 EPILOGUE linear_bias)
gen_add_bundle(mnist NAME mnist_input_gradient AUTO SHAPES ${input_gradient} GPUS ${MNIST_GPUS}
               DTYPE f16 LAYOUT rcr EPILOGUE ${where_active})
gen_add_bundle(mnist NAME mnist_weight_update AUTO SHAPES ${weight_update} GPUS ${MNIST_GPUS}
               DTYPE f16_f32 LAYOUT crr)

# With sums in f16, for --accumulate f16.
gen_add_bundle(mnist NAME mnist_forward_f16 AUTO SHAPES ${forward} GPUS ${MNIST_GPUS}
               DTYPE f16_f16 EPILOGUE linear_bias_relu)
gen_add_bundle(mnist NAME mnist_input_gradient_f16 AUTO SHAPES ${input_gradient} GPUS ${MNIST_GPUS}
               DTYPE f16_f16 LAYOUT rcr EPILOGUE ${where_active})
