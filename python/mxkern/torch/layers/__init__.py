# mxkern/torch/layers: layers that train: functions and modules.
