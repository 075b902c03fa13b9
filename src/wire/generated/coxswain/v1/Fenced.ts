// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Fenced {
  'epoch'?: (number | string | Long);
}

export interface Fenced__Output {
  'epoch': (number);
}
