// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Stats {
  'epoch'?: (number | string | Long);
  'collectives'?: (number | string | Long);
  'bytesSent'?: (number | string | Long);
  'bytesReceived'?: (number | string | Long);
  'waitNs'?: (number | string | Long);
  'residentBytes'?: (number | string | Long);
  'steps'?: (number | string | Long);
}

export interface Stats__Output {
  'epoch': (number);
  'collectives': (number);
  'bytesSent': (number);
  'bytesReceived': (number);
  'waitNs': (number);
  'residentBytes': (number);
  'steps': (number);
}
