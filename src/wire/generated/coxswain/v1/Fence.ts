// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Fence {
  'epoch'?: (number | string | Long);
  'reason'?: (string);
}

export interface Fence__Output {
  'epoch': (number);
  'reason': (string);
}
