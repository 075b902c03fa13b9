// Original file: proto/coxswain/v1/control.proto


export interface Loading {
  'seconds'?: (number | string);
}

export interface Loading__Output {
  'seconds': (number);
}
