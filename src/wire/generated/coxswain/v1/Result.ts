// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Result {
  'epoch'?: (number | string | Long);
  'step'?: (number | string | Long);
  'result'?: (Buffer | Uint8Array | string);
  'more'?: (boolean);
}

export interface Result__Output {
  'epoch': (number);
  'step': (number);
  'result': (Buffer);
  'more': (boolean);
}
