export * from './addresses.ts';
export * from './capabilities.ts';
export * from './captured-log.ts';
export * from './http.ts';
export * from './metrics.ts';
export * from './raw-client.ts';
export * from './real-services.ts';
export * from './service-process.ts';
