{{- define "amplifier-slack.name" -}}
{{- if contains "amplifier-slack" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-amplifier-slack" (.Release.Name | trunc 34 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "amplifier-slack.selector" -}}
app.kubernetes.io/name: amplifier-slack
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "amplifier-slack.labels" -}}
{{ include "amplifier-slack.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The configuration file as a value, only to look at: YAML's order of the instances is lost in it. */}}
{{- define "amplifier-slack.config" -}}
{{ toJson (.Values.config | default "{}" | fromYaml) }}
{{- end }}

{{- define "amplifier-slack.transport" -}}
{{- $config := include "amplifier-slack.config" . | fromJson }}
{{- ($config.slack | default dict).transport | default "socket" }}
{{- end }}

{{- define "amplifier-slack.shutdownGrace" -}}
{{ dig "shutdown_grace_s" 10 (include "amplifier-slack.config" . | fromJson) | float64 | ceil | int }}
{{- end }}

{{- define "amplifier-slack.terminationGrace" -}}
{{ .Values.terminationGracePeriodSeconds | default (add (include "amplifier-slack.shutdownGrace" .) 15) | int }}
{{- end }}

{{/* Refuse values that contradict each other, each with a sentence that says what to do. */}}
{{- define "amplifier-slack.check" -}}
{{- $config := include "amplifier-slack.config" . | fromJson }}
{{- with $config.Error }}{{ fail (printf "config is not valid YAML: %s; correct it, or give the file with --set-file config=FILE." .) }}{{ end }}
{{- $http := eq (include "amplifier-slack.transport" .) "http" }}
{{- if eq .Values.store "sqlite" }}
  {{- if .Values.autoscaling.enabled }}{{ fail "autoscaling.enabled: an SQLite store has one replica; set store=redis, or leave autoscaling off." }}{{ end }}
  {{- if gt (int .Values.replicas) 1 }}{{ fail (printf "replicas is %d, but an SQLite store has one replica; set store=redis, or replicas=1." (int .Values.replicas)) }}{{ end }}
{{- else }}
  {{- $replicas := ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled | int }}
  {{- if and (gt $replicas 4) (not $http) }}{{ fail (printf "%d replicas: Slack allows ten Socket Mode connections of an app, and each replica has two, also the one more during an upgrade; use at most 4, or transport: http." $replicas) }}{{ end }}
  {{- if and (gt $replicas 1) (not .Values.persistence.existingClaim) (ne .Values.persistence.accessMode "ReadWriteMany") }}{{ fail "persistence.accessMode: several replicas share the files of the conversations; set ReadWriteMany with a storage class that can do it, or name such a claim in persistence.existingClaim." }}{{ end }}
  {{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}{{ fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas; lower it." }}{{ end }}
{{- end }}
{{- $root := ($config.workspace | default dict).root | default "/data/" }}
{{- if not (or (hasPrefix "/data/" $root) (hasPrefix "${AMPLIFIER_SLACK_DATA" $root)) }}{{ fail (printf "config: workspace.root is %s, but only /data is kept; write /data/workspaces, or leave it out." $root) }}{{ end }}
{{- if and $http (ne (($config.slack | default dict).listen | default "") "0.0.0.0:3000") }}{{ fail "config: with transport: http, write listen: 0.0.0.0:3000 in the section slack, so that the service of the chart reaches it." }}{{ end }}
{{- $grace := include "amplifier-slack.shutdownGrace" . | int }}
{{- if le (include "amplifier-slack.terminationGrace" . | int) (add $grace 2 | int) }}{{ fail (printf "terminationGracePeriodSeconds must be greater than shutdown_grace_s (%d) by more than 2 seconds; raise it, or leave it out." $grace) }}{{ end }}
{{- if .Values.secret.create }}
  {{- $needed := list "SLACK_BOT_TOKEN" (ternary "SLACK_SIGNING_SECRET" "SLACK_APP_TOKEN" $http) }}
  {{- if eq .Values.store "redis" }}{{ $needed = append $needed "AMPLIFIER_SLACK_STORE" }}{{ end }}
  {{- range $needed }}{{ if not (index $.Values.secret.values .) }}{{ fail (printf "secret.values.%s is missing; set it, or leave secret.create off and make the secret yourself." .) }}{{ end }}{{ end }}
{{- else if .Values.secret.values }}{{ fail "secret.values is given, but secret.create is off; set secret.create=true, or remove the values." }}
{{- end }}
{{- end }}
