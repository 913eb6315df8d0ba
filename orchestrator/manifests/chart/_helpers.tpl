{{- /* Seconds of a duration such as 90s or 1h30m. */ -}}
{{- define "muster.seconds" -}}
{{- $seconds := dict "h" 3600 "m" 60 "s" 1 -}}
{{- $total := 0 -}}
{{- range $part := regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $total = add $total (mul (regexFind "[0-9]+" $part | int64) (get $seconds (regexFind "[hms]" $part))) -}}
{{- end -}}
{{- $total -}}
{{- end -}}

{{- /* A duration as the operator takes it: in seconds, or never. */ -}}
{{- define "muster.duration" -}}
{{- if eq . "never" -}}never{{- else -}}{{ include "muster.seconds" . }}s{{- end -}}
{{- end -}}

{{- /* Whether there are agents: where nothing is said, if there are operators. */ -}}
{{- define "muster.agent" -}}
{{- if kindIs "bool" .Values.agent -}}
{{- if .Values.agent -}}true{{- end -}}
{{- else if gt (int64 .Values.replicas) 0 -}}true
{{- end -}}
{{- end -}}
