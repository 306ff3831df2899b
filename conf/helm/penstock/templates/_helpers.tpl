{{- define "penstock.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "penstock.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- end -}}

{{/* Keys of one section of the configuration from the value `name`, without the keys `made` that the chart writes. */}}
{{- define "penstock.section" -}}
{{- $text := .text | default "" }}
{{- if regexMatch "(?m)^[ \\t]*\\[" $text }}
{{- fail (printf "%s: it has the keys of one section; write other sections into `config`." .name) }}
{{- end }}
{{- if and .made (regexMatch (printf "(?m)^[ \\t]*[\"']?(%s)[\"']?[ \\t]*[.=]" .made) $text) }}
{{- fail (printf "%s: the keys %s are made by the chart." .name (replace "|" ", " .made)) }}
{{- end }}
{{- $text | trim }}
{{- end -}}
