export * from './errors.ts';
export * from './metrics-process.ts';
export * from './metrics-series.ts';
export * from './metrics.ts';
export * from './sched.ts';
